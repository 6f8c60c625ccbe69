// The options of optimizers and schedulers, declared once: components, configs, files and the command line share them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/config/own_options.hpp>

namespace danling::inline v0::optim {

/// Unset options keep the default of the optimizer type: that of torch.optim, except `fused`, which is on. A type
/// refuses options that it does not have.
struct OptimizerOptions {
  std::optional<double> lr = std::nullopt;  ///< 1e-3
  std::optional<double> momentum = std::nullopt;
  std::optional<double> dampening = std::nullopt;
  std::optional<std::pair<double, double>> betas = std::nullopt;  ///< 0.9, 0.999
  std::optional<double> eps = std::nullopt;                       ///< 1e-8
  std::optional<double> weight_decay = std::nullopt;              ///< 1e-2 (AdamW), 0 (others)
  std::optional<bool> nesterov = std::nullopt;
  std::optional<bool> amsgrad = std::nullopt;
  std::optional<bool> maximize = std::nullopt;
  /// Update in one pass over memory where there is a kernel for the dtype, device and layout: danling's on the CPU,
  /// LibTorch's on CUDA where its update was found equal to that of unfused operations. False: unfused operations.
  std::optional<bool> fused = std::nullopt;
  std::optional<double> rho = std::nullopt;                            ///< 0.9 (Adadelta)
  std::optional<double> alpha = std::nullopt;                          ///< 0.99 (RMSprop), 0.75 (ASGD)
  std::optional<bool> centered = std::nullopt;                         ///< (RMSprop)
  std::optional<double> lr_decay = std::nullopt;                       ///< 0 (Adagrad)
  std::optional<double> initial_accumulator_value = std::nullopt;      ///< 0 (Adagrad)
  std::optional<double> lambd = std::nullopt;                          ///< 1e-4 (ASGD)
  std::optional<double> t0 = std::nullopt;                             ///< 1e6 (ASGD)
  std::optional<double> momentum_decay = std::nullopt;                 ///< 4e-3 (NAdam)
  std::optional<bool> decoupled_weight_decay = std::nullopt;           ///< false (NAdam, RAdam)
  std::optional<std::pair<double, double>> etas = std::nullopt;        ///< 0.5, 1.2 (Rprop)
  std::optional<std::pair<double, double>> step_sizes = std::nullopt;  ///< 1e-6, 50 (Rprop)
  /// Keep a float32 copy of bfloat16 and float16 parameters, and the state in float32; the update changes the copy.
  std::optional<bool> master_weights = std::nullopt;
  /// Round updated bfloat16 parameters up or down at random, so that small updates are not lost on average. The random
  /// bits depend on the update and the element alone: a resumed run and all ranks round alike.
  std::optional<bool> stochastic_rounding = std::nullopt;
  // LBFGS
  std::optional<std::int64_t> max_iter = std::nullopt;       ///< 20 iterations an update
  std::optional<std::int64_t> max_eval = std::nullopt;       ///< evaluations an update; max_iter * 5 / 4
  std::optional<double> tolerance_grad = std::nullopt;       ///< 1e-7
  std::optional<double> tolerance_change = std::nullopt;     ///< 1e-9
  std::optional<std::int64_t> history_size = std::nullopt;   ///< 100
  std::optional<std::string> line_search_fn = std::nullopt;  ///< strong_wolfe; unset: steps of lr
  // Adafactor, whose `eps` is the first of torch's pair
  std::optional<double> beta2_decay = std::nullopt;  ///< -0.8
  std::optional<double> eps2 = std::nullopt;         ///< 1e-3
  std::optional<double> d = std::nullopt;            ///< 1: the largest root mean square of an update
  // Muon
  std::optional<std::vector<double>> ns_coefficients = std::nullopt;  ///< 3.4445, -4.775, 2.0315
  std::optional<std::int64_t> ns_steps = std::nullopt;                ///< 5
  std::optional<std::string> adjust_lr_fn = std::nullopt;             ///< original (the default) or match_rms_adamw
  std::optional<bool> use_muon = std::nullopt;    ///< for matrices; false: AdamW, as other parameters always
  std::optional<double> adamw_lr = std::nullopt;  ///< lr with match_rms_adamw, else 1e-3
  std::optional<std::pair<double, double>> adamw_betas = std::nullopt;  ///< 0.9, 0.999
  std::optional<double> adamw_eps = std::nullopt;                       ///< 1e-8
  std::optional<double> adamw_weight_decay = std::nullopt;              ///< 1e-2

  /// The values of options that the program registered with its optimizer.
  OwnOptions own_options = {};
  template <class T>
  T& own() {
    return own_options.get<T>();
  }
  template <class T>
  const T& own() const {
    return own_options.get<T>();
  }

  void fields(Fields& f);
};

/// The options that programs added to `optim` and its parameter groups: see register_optimizer.
OwnOptionTypes& own_optimizer_options();

/// Parameters whose names match `pattern`, with their overrides: `ParamGroupSpec("head", {.lr = 0.1})`.
struct ParamGroupSpec : OptimizerOptions {
  ParamGroupSpec() = default;
  ParamGroupSpec(std::string regex, const OptimizerOptions& options = {})  // NOLINT(google-explicit-constructor)
      : OptimizerOptions(options), pattern(std::move(regex)) {}

  std::string pattern = {};  ///< regular expression (ECMAScript), searched for anywhere in the name
  // Relative to the optimizer's option, which must then be set.
  std::optional<double> lr_multiplier = std::nullopt;
  std::optional<double> weight_decay_multiplier = std::nullopt;
  std::optional<double> beta1 = std::nullopt;  ///< replaces the first of `betas`
  std::optional<double> beta2 = std::nullopt;
  std::optional<bool> no_decay = std::nullopt;  ///< unset: as the optimizer

  void fields(Fields& f);
};

/// One optimizer: `OptimizerSpec("sgd", {.lr = 0.1, .momentum = 0.9})`. Without `type`, none.
struct OptimizerSpec : OptimizerOptions {
  OptimizerSpec() = default;
  OptimizerSpec(std::string name, const OptimizerOptions& options = {},  // NOLINT(google-explicit-constructor)
                std::vector<ParamGroupSpec> groups = {})
      : OptimizerOptions(options), type(std::move(name)), param_groups(std::move(groups)) {}

  std::optional<std::string> type = std::nullopt;
  std::vector<ParamGroupSpec> param_groups = {};  ///< a parameter belongs to the first group whose pattern matches
  /// No weight decay for parameters of fewer than two dimensions, and for those named `bias` or inside a module whose
  /// name contains `norm`: they form groups of their own, whose other options are those of their group. false
  std::optional<bool> no_decay = std::nullopt;
  /// Regular expressions (ECMAScript), each searched for anywhere in the names: matching parameters are frozen. They
  /// require no gradient and are in no group.
  std::optional<std::vector<std::string>> freeze = std::nullopt;
  std::string section = "optim";  ///< for messages; no option

  void fields(Fields& f);
};

/// One schedule; unset options keep the defaults of the type. Without `type`, none.
struct SchedulerSpec {
  std::optional<std::string> type = std::nullopt;
  std::optional<std::int64_t> total_steps = std::nullopt;  ///< overrides that of the run
  /// The final rate over the base rate. 1e-3 when neither this nor `final_lr` is given; not both.
  std::optional<double> final_lr_ratio = std::nullopt;
  std::optional<double> final_lr = std::nullopt;
  /// The rate at which warm-up starts and cool-down ends, and the minimum. 1e-9. Lowered to `final_lr` when that is
  /// smaller.
  std::optional<double> min_lr = std::nullopt;
  std::optional<std::int64_t> warmup_steps = std::nullopt;    ///< total_steps / 20; 0 for none
  std::optional<std::int64_t> cooldown_steps = std::nullopt;  ///< total_steps / 5; 0 for none
  /// Conversion of a curve's fraction to a rate between the base and the final one: percentile,
  /// base * (final / base)^fraction, the default with a ratio; or numerical, a straight line, the default with
  /// `final_lr`.
  std::optional<std::string> scaling = std::nullopt;
  std::optional<std::int64_t> step_size = std::nullopt;
  std::optional<double> gamma = std::nullopt;
  // For the caller of `step()`:
  std::optional<std::string> interval = std::nullopt;  ///< step, epoch or validation
  std::optional<std::string> monitor = std::nullopt;   ///< `<split>.<metric>`, for a schedule that requires one
  std::string section = "sched";                       ///< for messages; no option

  /// The values of options that the program registered with its scheduler.
  OwnOptions own_options = {};
  template <class T>
  T& own() {
    return own_options.get<T>();
  }
  template <class T>
  const T& own() const {
    return own_options.get<T>();
  }

  void fields(Fields& f);
};

/// The options that programs added to `sched`: see register_scheduler.
OwnOptionTypes& own_scheduler_options();

}  // namespace danling::inline v0::optim
