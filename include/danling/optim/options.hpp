// Options of optimizers and schedulers, declared once for components, configs, files and the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/config/custom_options.hpp>

namespace danling::inline v0::optim {

/// Unset options use the default of the optimizer type, which comments name: that of torch.optim, except `fused`, which
/// is on. A type refuses options that it does not have.
struct OptimizerOptions {
  std::optional<double> lr = std::nullopt;                        ///< by type: docs/optim/optimizers.md
  std::optional<double> momentum = std::nullopt;                  ///< 0 (SGD, RMSprop), 0.95 (Muon)
  std::optional<double> dampening = std::nullopt;                 ///< 0 (SGD)
  std::optional<std::pair<double, double>> betas = std::nullopt;  ///< 0.9, 0.999; Lion: 0.9, 0.99
  std::optional<double> eps = std::nullopt;                       ///< by type
  std::optional<double> weight_decay = std::nullopt;              ///< 1e-2 (AdamW, LAMB), 0.1 (Muon), 0 (others)
  std::optional<bool> nesterov = std::nullopt;                    ///< false (SGD), true (Muon)
  std::optional<bool> amsgrad = std::nullopt;                     ///< false (Adam, AdamW)
  std::optional<bool> maximize = std::nullopt;                    ///< false: minimizes the loss
  /// Updates in one pass over memory if there is a kernel for the dtype, device and layout: danling's on the CPU,
  /// LibTorch's on CUDA if its update equals that of unfused operations. False: unfused operations.
  std::optional<bool> fused = std::nullopt;
  std::optional<double> rho = std::nullopt;                            ///< 0.9 (Adadelta)
  std::optional<double> alpha = std::nullopt;                          ///< 0.99 (RMSprop), 0.75 (ASGD)
  std::optional<bool> centered = std::nullopt;                         ///< false (RMSprop)
  std::optional<double> lr_decay = std::nullopt;                       ///< 0 (Adagrad)
  std::optional<double> initial_accumulator_value = std::nullopt;      ///< 0 (Adagrad)
  std::optional<double> lambd = std::nullopt;                          ///< 1e-4 (ASGD)
  std::optional<double> t0 = std::nullopt;                             ///< 1e6 (ASGD)
  std::optional<double> momentum_decay = std::nullopt;                 ///< 4e-3 (NAdam)
  std::optional<bool> decoupled_weight_decay = std::nullopt;           ///< true (AdamW), false (Adam, NAdam, RAdam)
  std::optional<std::pair<double, double>> etas = std::nullopt;        ///< 0.5, 1.2 (Rprop)
  std::optional<std::pair<double, double>> step_sizes = std::nullopt;  ///< 1e-6, 50 (Rprop)
  /// Keeps a float32 copy of bfloat16 and float16 parameters, and float32 state; updates change the copy. Default
  /// false; not together with stochastic_rounding.
  std::optional<bool> master_weights = std::nullopt;
  /// Rounds updated bfloat16 parameters up or down at random, so that small updates are not lost on average. The random
  /// bits depend only on the update and the element: resumed runs and all ranks round the same way. Default false.
  std::optional<bool> stochastic_rounding = std::nullopt;
  // LBFGS
  std::optional<std::int64_t> max_iter = std::nullopt;       ///< 20 iterations per update
  std::optional<std::int64_t> max_eval = std::nullopt;       ///< evaluations per update; max_iter * 5 / 4
  std::optional<double> tolerance_grad = std::nullopt;       ///< 1e-7
  std::optional<double> tolerance_change = std::nullopt;     ///< 1e-9
  std::optional<std::int64_t> history_size = std::nullopt;   ///< 100
  std::optional<std::string> line_search_fn = std::nullopt;  ///< strong_wolfe; unset: steps of lr
  // Adafactor, whose `eps` is the first of torch's pair
  std::optional<double> beta2_decay = std::nullopt;  ///< -0.8
  std::optional<double> eps2 = std::nullopt;         ///< 1e-3
  std::optional<double> d = std::nullopt;            ///< 1: the largest root mean square of an update
  // Muon
  std::optional<std::vector<double>> ns_coefficients = std::nullopt;    ///< 3.4445, -4.775, 2.0315
  std::optional<std::int64_t> ns_steps = std::nullopt;                  ///< 5
  std::optional<std::string> adjust_lr_fn = std::nullopt;               ///< original (the default) or match_rms_adamw
  std::optional<bool> use_muon = std::nullopt;                          ///< true: Muon updates matrices; false: AdamW
  std::optional<double> adamw_lr = std::nullopt;                        ///< lr with match_rms_adamw, else 1e-3
  std::optional<std::pair<double, double>> adamw_betas = std::nullopt;  ///< 0.9, 0.999
  std::optional<double> adamw_eps = std::nullopt;                       ///< 1e-8
  std::optional<double> adamw_weight_decay = std::nullopt;              ///< 1e-2

  /// Values of options that the program registered with its optimizer.
  CustomOptions custom_options = {};
  template <class T>
  T& custom() {
    return custom_options.get<T>();
  }
  template <class T>
  const T& custom() const {
    return custom_options.get<T>();
  }
  template <class T>
  [[deprecated("use custom")]] const T& own() const {
    return custom<T>();
  }

  void fields(Fields& f);
};

/// Options that programs add to `optim` and its parameter groups: see register_optimizer.
CustomOptionTypes& custom_optimizer_options();

/// Parameters whose names match `pattern`, with their overrides: `ParamGroupSpec("head", {.lr = 0.1})`.
struct ParamGroupSpec : OptimizerOptions {
  ParamGroupSpec() = default;
  ParamGroupSpec(std::string regex, const OptimizerOptions& options = {})  // NOLINT(google-explicit-constructor)
      : OptimizerOptions(options), pattern(std::move(regex)) {}

  std::string pattern = {};  ///< regular expression (ECMAScript), searched for in the parameter's name
  // Factors of the optimizer's option, which must be set.
  std::optional<double> lr_multiplier = std::nullopt;
  std::optional<double> weight_decay_multiplier = std::nullopt;
  // Replace one of the group's betas.
  std::optional<double> beta1 = std::nullopt;
  std::optional<double> beta2 = std::nullopt;
  std::optional<bool> no_decay = std::nullopt;  ///< unset: that of the optimizer

  void fields(Fields& f);
};

/// One optimizer: `OptimizerSpec("sgd", {.lr = 0.1, .momentum = 0.9})`. No optimizer without `type`.
struct OptimizerSpec : OptimizerOptions {
  OptimizerSpec() = default;
  OptimizerSpec(std::string name, const OptimizerOptions& options = {},  // NOLINT(google-explicit-constructor)
                std::vector<ParamGroupSpec> groups = {})
      : OptimizerOptions(options), type(std::move(name)), param_groups(std::move(groups)) {}

  std::optional<std::string> type = std::nullopt;
  std::vector<ParamGroupSpec> param_groups = {};  ///< a parameter belongs to the first group whose pattern matches
  /// No weight decay for parameters with fewer than two dimensions, those named `bias`, and those of a module whose
  /// last name contains `norm`. They form separate groups with the other options of their group. Default false
  std::optional<bool> no_decay = std::nullopt;
  /// Regular expressions (ECMAScript), searched for in the names: matching parameters are frozen. They require no
  /// gradient and are in no group.
  std::optional<std::vector<std::string>> freeze = std::nullopt;
  std::string section = "optim";  ///< for messages; not an option

  void fields(Fields& f);
};

struct SchedulerPart;

/// One schedule. Unset options use the defaults of the type, which refuses options that it does not have. No schedule
/// without `type` and `chain`.
struct SchedulerSpec {
  std::optional<std::string> type = std::nullopt;
  std::optional<std::int64_t> total_steps = std::nullopt;  ///< overrides that of the run
  /// The final rate over the base rate. If neither this nor `final_lr` is set, the curve's default, mostly 1e-3.
  /// Setting both is an error.
  std::optional<double> final_lr_ratio = std::nullopt;
  std::optional<double> final_lr = std::nullopt;
  /// The rate at which warm-up starts and cool-down ends, and the minimum. Default 1e-9, lowered to `final_lr` if that
  /// is smaller. reduce_on_plateau: the lower limit of the rate, default 0.
  std::optional<double> min_lr = std::nullopt;
  std::optional<std::int64_t> warmup_steps = std::nullopt;    ///< total_steps / 20; PyTorch's schedules: none
  std::optional<std::int64_t> cooldown_steps = std::nullopt;  ///< total_steps / 5; PyTorch's schedules and wsd: none
  /// Maps a curve's fraction to a rate between base and final: percentile is base * (final / base)^fraction, numerical
  /// is linear. Default for linear, cosine and constant: percentile, or numerical with `final_lr`.
  std::optional<std::string> scaling = std::nullopt;
  std::optional<std::int64_t> step_size = std::nullopt;  ///< step: required
  std::optional<double> gamma = std::nullopt;            ///< step, multistep: 0.1; cyclic: 1; ExponentialLR: required

  // Curves of LRScheduler.
  std::optional<double> power = std::nullopt;              ///< polynomial, PolynomialLR: 1
  std::optional<std::int64_t> timescale = std::nullopt;    ///< inverse_sqrt: warmup_steps, or 10000 without warm-up
  std::optional<std::int64_t> decay_steps = std::nullopt;  ///< wsd: total_steps / 5
  std::optional<std::string> decay = std::nullopt;         ///< wsd: the curve of its last part; linear

  // PyTorch's schedules, with PyTorch's names and defaults. A list has one value, or one per parameter group.
  std::optional<std::vector<std::int64_t>> milestones = std::nullopt;  ///< multistep: required
  std::optional<std::int64_t> T_max = std::nullopt;                    ///< total_steps
  std::optional<std::int64_t> T_0 = std::nullopt;                      ///< cosine_warm_restarts: required
  std::optional<std::int64_t> T_mult = std::nullopt;                   ///< 1
  std::optional<double> eta_min = std::nullopt;                        ///< 0
  std::optional<std::vector<double>> base_lr = std::nullopt;           ///< the optimizer's rates
  std::optional<std::vector<double>> max_lr = std::nullopt;   ///< one_cycle: the optimizer's rates; cyclic: required
  std::optional<std::int64_t> step_size_up = std::nullopt;    ///< 2000
  std::optional<std::int64_t> step_size_down = std::nullopt;  ///< step_size_up
  /// cyclic: triangular (the default), triangular2 or exp_range; reduce_on_plateau: min (the default) or max
  std::optional<std::string> mode = std::nullopt;
  std::optional<bool> cycle_momentum = std::nullopt;          ///< true
  std::optional<double> base_momentum = std::nullopt;         ///< cyclic: 0.8; one_cycle: 0.85
  std::optional<double> max_momentum = std::nullopt;          ///< cyclic: 0.9; one_cycle: 0.95
  std::optional<double> pct_start = std::nullopt;             ///< 0.3
  std::optional<std::string> anneal_strategy = std::nullopt;  ///< cos (the default) or linear
  std::optional<double> div_factor = std::nullopt;            ///< 25
  std::optional<double> final_div_factor = std::nullopt;      ///< 1e4
  std::optional<bool> three_phase = std::nullopt;             ///< one_cycle: false
  std::optional<double> factor = std::nullopt;                ///< reduce_on_plateau: 0.1; ConstantLR: 1/3
  std::optional<double> start_factor = std::nullopt;          ///< 1/3
  std::optional<double> end_factor = std::nullopt;            ///< 1
  std::optional<std::int64_t> total_iters = std::nullopt;     ///< 5
  std::optional<std::int64_t> patience = std::nullopt;        ///< 10
  std::optional<double> threshold = std::nullopt;             ///< 1e-4
  std::optional<std::string> threshold_mode = std::nullopt;   ///< rel (the default) or abs
  std::optional<std::int64_t> cooldown = std::nullopt;        ///< 0
  std::optional<double> eps = std::nullopt;                   ///< 1e-8

  /// Schedules run in sequence (sequential, the default with a chain), or all at once (chained).
#ifdef __clang__  // an initializer would need the complete type
  std::vector<SchedulerPart> chain;
#else
  std::vector<SchedulerPart> chain = {};
#endif
  // For the caller of `step()`:
  std::optional<std::string> interval = std::nullopt;  ///< step or epoch, or a synonym
  std::optional<std::string> monitor = std::nullopt;   ///< `<split>.<metric>`, for a schedule that requires a metric
  std::string section = "sched";                       ///< for messages; not an option

  /// Values of options that the program registered with its scheduler.
  CustomOptions custom_options = {};
  template <class T>
  T& custom() {
    return custom_options.get<T>();
  }
  template <class T>
  const T& custom() const {
    return custom_options.get<T>();
  }

  /// `type` in lower case, or sequential with a chain; empty for no schedule.
  std::string type_name() const;
  /// "step" (also steps, update, updates), "epoch" (also epochs, eval, evaluation, validation), or empty when unset.
  std::string_view interval_name() const;

  void fields(Fields& f);
  /// The fields without `chain`, `interval` and `monitor`, which a part of a chain does not have.
  void part_fields(Fields& f);
};

/// One of the schedules of a chain: `{{.type = "linear", .warmup_steps = 0}, 100}`.
struct SchedulerPart : SchedulerSpec {
  SchedulerPart() = default;
  SchedulerPart(SchedulerSpec schedule, std::optional<std::int64_t> length = std::nullopt)  // NOLINT
      : SchedulerSpec(std::move(schedule)), steps(length) {}

  std::optional<std::int64_t> steps = std::nullopt;  ///< length in a sequence; the last part takes the remaining steps

  void fields(Fields& f);
};

/// Options that programs add to `sched`: see register_scheduler.
CustomOptionTypes& custom_scheduler_options();

}  // namespace danling::inline v0::optim
