#include <danling/optim/options.hpp>

#include <danling/config/fields.hpp>

namespace danling::inline v0::optim {

void OptimizerOptions::fields(Fields& f) {
  f("lr", lr, "learning rate").at_least(0);
  f("weight_decay", weight_decay, "weight decay").at_least(0);
  f("momentum", momentum, "momentum (SGD, RMSprop, Muon)").at_least(0);
  f("dampening", dampening, "dampening of momentum (SGD)");
  f("nesterov", nesterov, "Nesterov momentum (SGD, Muon)");
  f("betas", betas, "decay rates of the moments (Adam variants, LAMB, Lion)").range(0, 1);
  f("eps", eps, "added to the denominator; Muon: least norm; Adafactor: least second moment").at_least(0);
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
  f("decoupled_weight_decay", decoupled_weight_decay, "shrink the parameter itself (Adam, AdamW, NAdam, RAdam)");
  f("etas", etas, "step factors when the gradient changes its sign and when it does not (Rprop)").at_least(0);
  f("step_sizes", step_sizes, "least and largest step (Rprop)").at_least(0);
  f("master_weights", master_weights, "keep float32 copies of half-precision parameters");
  f("stochastic_rounding", stochastic_rounding, "round updated bfloat16 parameters up or down at random");
  f("max_iter", max_iter, "iterations of an update (LBFGS)").at_least(1);
  f("max_eval", max_eval, "evaluations of an update (LBFGS); unset: max_iter * 5 / 4").at_least(1);
  f("tolerance_grad", tolerance_grad, "an update ends when no gradient is larger (LBFGS)").at_least(0);
  f("tolerance_change", tolerance_change, "an update ends when its change is smaller (LBFGS)").at_least(0);
  f("history_size", history_size, "stored changes of the gradient (LBFGS)").at_least(1);
  f("line_search_fn", line_search_fn, "line search (LBFGS); unset: steps of lr").choices({"strong_wolfe"});
  f("beta2_decay", beta2_decay, "exponent of the second moment's decay (Adafactor)").range(-1e9, 0);
  f("eps2", eps2, "least root mean square of a parameter (Adafactor)").at_least(0);
  f("d", d, "largest root mean square of an update (Adafactor)").at_least(1);
  f("ns_coefficients", ns_coefficients, "three coefficients of the Newton-Schulz iteration (Muon)");
  f("ns_steps", ns_steps, "steps of the Newton-Schulz iteration (Muon)").range(1, 99);
  f("adjust_lr_fn", adjust_lr_fn, "scale of the learning rate by a matrix's shape (Muon); unset: original")
      .choices({"original", "match_rms_adamw"});
  f("use_muon", use_muon, "false: AdamW for matrices too (Muon)");
  f("adamw_lr", adamw_lr, "learning rate of parameters that AdamW updates (Muon)").at_least(0);
  f("adamw_betas", adamw_betas, "betas of parameters that AdamW updates (Muon)").range(0, 1);
  f("adamw_eps", adamw_eps, "eps of parameters that AdamW updates (Muon)").at_least(0);
  f("adamw_weight_decay", adamw_weight_decay, "weight decay of parameters that AdamW updates (Muon)").at_least(0);
  custom_options.fields(f, custom_optimizer_options());
}

CustomOptionTypes& custom_optimizer_options() {
  static CustomOptionTypes types;
  return types;
}

void ParamGroupSpec::fields(Fields& f) {
  f("pattern", pattern, "regular expression searched for in parameter names");
  OptimizerOptions::fields(f);
  f("lr_multiplier", lr_multiplier, "factor of the optimizer's lr").at_least(0);
  f("weight_decay_multiplier", weight_decay_multiplier, "factor of the optimizer's weight_decay").at_least(0);
  f("beta1", beta1, "replaces the first of the optimizer's betas").range(0, 1);
  f("beta2", beta2, "replaces the second of the optimizer's betas").range(0, 1);
  f("no_decay", no_decay, "as the optimizer's no_decay, for this group");
}

void OptimizerSpec::fields(Fields& f) {
  f("type", type, "optimizer, such as sgd, adamw or lion, or one that the program registered; unset builds none")
      .case_insensitive();
  OptimizerOptions::fields(f);
  f("param_groups", param_groups, "options by parameter name; the first pattern that matches counts");
  f("no_decay", no_decay, "no weight decay for biases, norms and other parameters of fewer than two dimensions");
  f("freeze", freeze, "parameters that do not train: regular expressions searched for in their names");
}

void SchedulerSpec::part_fields(Fields& f) {
  f("type", type,
    "schedule: linear, cosine, constant, polynomial, exponential, inverse_sqrt, wsd, step, multistep, cyclic, "
    "one_cycle, cosine_annealing, cosine_warm_restarts, reduce_on_plateau, a class of torch.optim.lr_scheduler, or one "
    "that the program registered; unset builds none")
      .case_insensitive();
  f("total_steps", total_steps, "length of the schedule; unset: that of the run").at_least(1);
  f("warmup_steps", warmup_steps, "steps of warm-up; unset: total_steps / 20, none for PyTorch's schedules")
      .at_least(0);
  f("cooldown_steps", cooldown_steps,
    "steps of cool-down; unset: total_steps / 5, none for PyTorch's schedules and wsd")
      .at_least(0);
  f("final_lr_ratio", final_lr_ratio, "final learning rate relative to the initial one; unset: 1e-3").at_least(0);
  f("final_lr", final_lr, "final learning rate, instead of final_lr_ratio").at_least(0);
  f("min_lr", min_lr, "least learning rate; unset: 1e-9, or 0 (reduce_on_plateau)").at_least(0);
  f("scaling", scaling,
    "how progress maps to a rate; unset: by the curve; linear, cosine, constant: percentile, numerical with final_lr")
      .choices({"percentile", "numerical"});
  f("power", power, "exponent (polynomial, PolynomialLR); unset: 1").above(0);
  f("timescale", timescale, "steps after which the rate falls (inverse_sqrt); unset: warmup_steps").at_least(1);
  f("decay_steps", decay_steps, "steps of the last part (wsd); unset: total_steps / 5").at_least(0);
  f("decay", decay, "curve of the last part (wsd); unset: linear").case_insensitive();
  f("step_size", step_size, "steps between two decays (step)").at_least(1);
  f("milestones", milestones, "steps of the decays (multistep)").at_least(0);
  f("gamma", gamma, "factor of a decay (step, multistep), of each step (exponential), of a cycle's height (cyclic)");
  f("T_max", T_max, "steps of half a period (cosine_annealing); unset: total_steps").at_least(1);
  f("T_0", T_0, "steps before the first restart (cosine_warm_restarts)").at_least(1);
  f("T_mult", T_mult, "factor of the period at each restart (cosine_warm_restarts); unset: 1").at_least(1);
  f("eta_min", eta_min, "least learning rate (cosine_annealing, cosine_warm_restarts); unset: 0");
  f("base_lr", base_lr, "least learning rate of a cycle (cyclic); unset: the optimizer's").at_least(0);
  f("max_lr", max_lr, "highest learning rate of a cycle (cyclic, one_cycle); one_cycle unset: the optimizer's")
      .at_least(0);
  f("step_size_up", step_size_up, "steps of a cycle's first half (cyclic); unset: 2000").at_least(1);
  f("step_size_down", step_size_down, "steps of a cycle's second half (cyclic); unset: step_size_up").at_least(1);
  f("mode", mode,
    "triangular, triangular2 or exp_range (cyclic); whether a lower or a higher metric is better, min or max "
    "(reduce_on_plateau)")
      .choices({"triangular", "triangular2", "exp_range", "min", "max"});
  f("cycle_momentum", cycle_momentum, "cycle momentum, or the first of betas, against the rate; unset: true");
  f("base_momentum", base_momentum, "least momentum of a cycle; unset: 0.8 (cyclic), 0.85 (one_cycle)").range(0, 1);
  f("max_momentum", max_momentum, "highest momentum of a cycle; unset: 0.9 (cyclic), 0.95 (one_cycle)").range(0, 1);
  f("pct_start", pct_start, "share of the steps in which the rate rises (one_cycle); unset: 0.3").range(0, 1);
  f("anneal_strategy", anneal_strategy, "shape of the phases (one_cycle); unset: cos").choices({"cos", "linear"});
  f("div_factor", div_factor, "highest rate over the first (one_cycle); unset: 25").above(0);
  f("final_div_factor", final_div_factor, "first rate over the last (one_cycle); unset: 1e4").above(0);
  f("three_phase", three_phase, "fall as long as the rise lasted, then in a third phase to the last rate (one_cycle)");
  f("factor", factor, "factor of a reduction (reduce_on_plateau; unset: 0.1) or of the first steps (ConstantLR; 1/3)")
      .at_least(0);
  f("patience", patience, "steps without a better metric before a reduction (reduce_on_plateau); unset: 10")
      .at_least(0);
  f("threshold", threshold, "smallest improvement that counts (reduce_on_plateau); unset: 1e-4").at_least(0);
  f("threshold_mode", threshold_mode, "whether threshold is relative (reduce_on_plateau); unset: rel")
      .choices({"rel", "abs"});
  f("cooldown", cooldown, "steps after a reduction that do not count as patience (reduce_on_plateau); unset: 0")
      .at_least(0);
  f("eps", eps, "smallest change of a rate (reduce_on_plateau); unset: 1e-8").at_least(0);
  f("start_factor", start_factor, "factor of the first rate (LinearLR); unset: 1/3").range(0, 1);
  f("end_factor", end_factor, "factor of the last rate (LinearLR); unset: 1").range(0, 1);
  f("total_iters", total_iters, "steps until the last factor (LinearLR, ConstantLR, PolynomialLR); unset: 5")
      .at_least(1);
  custom_options.fields(f, custom_scheduler_options());
}

CustomOptionTypes& custom_scheduler_options() {
  static CustomOptionTypes types;
  return types;
}

void SchedulerSpec::fields(Fields& f) {
  part_fields(f);
  f("interval", interval, "unit of the schedule; unset: step, or epoch for a schedule that needs a metric")
      .choices({"step", "epoch"})
      .synonym("steps", "step")
      .synonym("update", "step")
      .synonym("updates", "step")
      .synonym("epochs", "epoch")
      .synonym("eval", "epoch")
      .synonym("evaluation", "epoch")
      .synonym("validation", "epoch");
  f("monitor", monitor,
    "metric for a schedule that needs one: <split>.<metric>, or a metric of score_split; unset: score_name");
  f("chain", chain, "schedules one after another, or all at once (type: chained)");
}

void SchedulerPart::fields(Fields& f) {
  part_fields(f);
  f("steps", steps, "length of this part; the last part takes the remaining steps").at_least(1);
}

std::string SchedulerSpec::type_name() const {
  std::string out = type.value_or(chain.empty() ? "" : "sequential");
  for (char& c : out) {
    c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  }
  return out;
}

std::string_view SchedulerSpec::interval_name() const {
  if (!interval) {
    return "";
  }
  return interval->starts_with("step") || interval->starts_with("update") ? "step" : "epoch";
}

}  // namespace danling::inline v0::optim
