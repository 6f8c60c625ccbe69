#include <danling/optim/options.hpp>

#include <danling/config/fields.hpp>

namespace danling::inline v0::optim {

void OptimizerOptions::fields(Fields& f) {
  f("lr", lr, "learning rate").at_least(0);
  f("weight_decay", weight_decay, "weight decay").at_least(0);
  f("momentum", momentum, "momentum (SGD, RMSprop)").at_least(0);
  f("dampening", dampening, "dampening of momentum (SGD)");
  f("nesterov", nesterov, "Nesterov momentum (SGD)");
  f("betas", betas, "decay rates of the moments (Adam and its kin, Lion)").range(0, 1);
  f("eps", eps, "added to the denominator").at_least(0);
  f("amsgrad", amsgrad, "AMSGrad variant (Adam, AdamW)");
  f("maximize", maximize, "maximise instead of minimise");
  f("fused", fused, "update in one pass over memory where there is a kernel");
  f("rho", rho, "decay rate of the averages (Adadelta)").range(0, 1);
  f("alpha", alpha, "decay rate of the average (RMSprop), exponent of the rate's decay (ASGD)").at_least(0);
  f("centered", centered, "divide by the standard deviation of the gradient (RMSprop)");
  f("lr_decay", lr_decay, "decay of the learning rate (Adagrad)").at_least(0);
  f("initial_accumulator_value", initial_accumulator_value, "first sum of squares (Adagrad)").at_least(0);
  f("lambd", lambd, "decay term (ASGD)").at_least(0);
  f("t0", t0, "update at which averaging begins (ASGD)").at_least(0);
  f("momentum_decay", momentum_decay, "decay of the momentum (NAdam)").at_least(0);
  f("decoupled_weight_decay", decoupled_weight_decay, "shrink the parameter itself (NAdam, RAdam)");
  f("etas", etas, "factors of a step after a turn and without one (Rprop)").at_least(0);
  f("step_sizes", step_sizes, "least and largest step (Rprop)").at_least(0);
  f("master_weights", master_weights, "keep float32 copies of half-precision parameters");
  f("stochastic_rounding", stochastic_rounding, "round updated bfloat16 parameters up or down at random");
  f("max_iter", max_iter, "iterations of an update (LBFGS)").at_least(1);
  f("max_eval", max_eval, "evaluations of an update (LBFGS); unset: max_iter * 5 / 4").at_least(1);
  f("tolerance_grad", tolerance_grad, "largest gradient at which an update ends (LBFGS)").at_least(0);
  f("tolerance_change", tolerance_change, "least change with which an update goes on (LBFGS)").at_least(0);
  f("history_size", history_size, "stored changes of the gradient (LBFGS)").at_least(1);
  f("line_search_fn", line_search_fn, "line search (LBFGS); unset: steps of lr").choices({"strong_wolfe"});
  f("beta2_decay", beta2_decay, "exponent of the second moment's decay (Adafactor)").range(-1e9, 0);
  f("eps2", eps2, "least root mean square of a parameter (Adafactor)").at_least(0);
  f("d", d, "largest root mean square of an update (Adafactor)").at_least(1);
  f("ns_coefficients", ns_coefficients, "three coefficients of the Newton-Schulz iteration (Muon)");
  f("ns_steps", ns_steps, "steps of the Newton-Schulz iteration (Muon)").range(1, 99);
  f("adjust_lr_fn", adjust_lr_fn, "learning rate by shape (Muon); unset: original")
      .choices({"original", "match_rms_adamw"});
  f("use_muon", use_muon, "false: AdamW for matrices too (Muon)");
  f("adamw_lr", adamw_lr, "learning rate of what AdamW updates (Muon)").at_least(0);
  f("adamw_betas", adamw_betas, "betas of what AdamW updates (Muon)").range(0, 1);
  f("adamw_eps", adamw_eps, "eps of what AdamW updates (Muon)").at_least(0);
  f("adamw_weight_decay", adamw_weight_decay, "weight decay of what AdamW updates (Muon)").at_least(0);
  own_options.fields(f, own_optimizer_options());
}

OwnOptionTypes& own_optimizer_options() {
  static OwnOptionTypes types;
  return types;
}

void ParamGroupSpec::fields(Fields& f) {
  f("pattern", pattern, "regular expression searched for in parameter names");
  OptimizerOptions::fields(f);
  f("lr_multiplier", lr_multiplier, "times the optimizer's lr").at_least(0);
  f("weight_decay_multiplier", weight_decay_multiplier, "times the optimizer's weight_decay").at_least(0);
  f("beta1", beta1, "instead of the first of the optimizer's betas").range(0, 1);
  f("beta2", beta2, "instead of the second of the optimizer's betas").range(0, 1);
  f("no_decay", no_decay, "as the optimizer's no_decay, for this group");
}

void OptimizerSpec::fields(Fields& f) {
  f("type", type, "optimizer: sgd, adam, adamw, or one that the program registered; unset builds none")
      .case_insensitive();
  OptimizerOptions::fields(f);
  f("param_groups", param_groups, "options by parameter name; the first pattern that matches counts");
  f("no_decay", no_decay, "no weight decay for biases, norms and other parameters of fewer than two dimensions");
  f("freeze", freeze, "parameters that do not train: regular expressions searched for in their names");
}

void SchedulerSpec::fields(Fields& f) {
  f("type", type, "schedule: linear, cosine, constant, step, or one that the program registered; unset builds none")
      .case_insensitive();
  f("interval", interval, "what advances the schedule; unset: step").choices({"step", "epoch", "validation"});
  f("total_steps", total_steps, "length of the schedule; unset: that of the run").at_least(1);
  f("warmup_steps", warmup_steps, "steps of warm-up; unset: total_steps / 20").at_least(0);
  f("cooldown_steps", cooldown_steps, "steps of cool-down; unset: total_steps / 5").at_least(0);
  f("final_lr_ratio", final_lr_ratio, "final learning rate relative to the initial one; unset: 1e-3").at_least(0);
  f("final_lr", final_lr, "final learning rate, instead of final_lr_ratio").at_least(0);
  f("min_lr", min_lr, "least learning rate; unset: 1e-9").at_least(0);
  f("scaling", scaling, "how progress maps to a rate; unset: percentile with final_lr_ratio, else numerical")
      .choices({"percentile", "numerical"});
  f("step_size", step_size, "steps between two decays (step)").at_least(1);
  f("gamma", gamma, "factor of a decay (step)");
  f("monitor", monitor,
    "metric for a schedule that needs one: <split>.<metric>, or a metric of score_split; unset: score_name");
  own_options.fields(f, own_scheduler_options());
}

OwnOptionTypes& own_scheduler_options() {
  static OwnOptionTypes types;
  return types;
}

}  // namespace danling::inline v0::optim
