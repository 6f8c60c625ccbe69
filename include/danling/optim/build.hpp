// Builds optimizers and schedulers from specifications: registries, parameter groups by pattern.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/core/registry.hpp>
#include <danling/optim/optimizer.hpp>
#include <danling/optim/options.hpp>
#include <danling/optim/scheduler.hpp>

namespace danling::inline v0::optim {

/// A parameter and its name in the model: `{"fc.weight", tensor}`.
using NamedParameter = std::pair<std::string, at::Tensor>;

/// Parameters with their effective options: those of the optimizer, overridden by those of their group.
struct ResolvedGroup {
  std::vector<at::Tensor> params;
  std::vector<std::string> names;
  OptimizerOptions options;
  /// `optim` or `optim.param_groups[0]`; for messages.
  std::string where;
};

/// Optimizers by `optim.type`: sgd, adamw, …, and types that the program adds. A factory gets at least one group.
using OptimizerRegistry = Registry<std::shared_ptr<Optimizer>(const OptimizerSpec&, const std::vector<ResolvedGroup>&)>;
OptimizerRegistry& optimizers();

namespace detail {
/// The keys of `optim` and of its parameter groups.
std::vector<std::string> optimizer_keys();
}  // namespace detail

/// Registers an optimizer with additional options: the fields of the struct T, all std::optional, become keys of
/// `optim` and of its parameter groups; `options.custom<T>()` returns them. Call it before a config is read.
/// @throws ConfigError when the name or a key is taken.
template <class T>
void register_optimizer(std::string_view name, OptimizerRegistry::Factory factory) {
  custom_optimizer_options().add<T>("optimizer.register", detail::optimizer_keys());
  optimizers().add(name, std::move(factory));
}

/// Freezes the parameters whose names match one of `patterns`: they require no gradient, and lose an existing one. Tied
/// weights match by any of their names. `where` names the patterns in messages.
/// @throws ConfigError for an invalid pattern, and for one that matches nothing.
void freeze(const std::vector<std::string>& patterns, const std::vector<NamedParameter>& parameters,
            std::string_view where = "optim.freeze");

/// Assigns each parameter to the first pattern found in its name; the rest form a last group with the optimizer's
/// options. With `no_decay`, parameters without weight decay form a separate group after the others of their pattern.
/// Leaves out parameters that `freeze` matches. A pattern without a match creates no group, and adds a line to
/// `warnings`.
/// @throws ConfigError for an invalid pattern, a multiplier without its base option or beside it, and beta1 or beta2
/// without betas.
std::vector<ResolvedGroup> resolve_groups(const OptimizerSpec& spec, const std::vector<NamedParameter>& parameters,
                                          std::vector<std::string>* warnings = nullptr);

/// @throws ConfigError when an option outside `known` is set, except `fused: true`. Factories call it, so that no
/// option is ignored.
void expect_options(const ResolvedGroup& group, std::string_view type, std::initializer_list<std::string_view> known);

/// Builds the optimizer that `spec` describes, after freezing the parameters that `spec.freeze` matches. Adds a
/// parameter that occurs twice (tied weights) once.
/// @throws ConfigError for a missing or unknown type, an option that the type does not have, or no parameters.
std::shared_ptr<Optimizer> build_optimizer(const OptimizerSpec& spec, const std::vector<NamedParameter>& parameters,
                                           std::vector<std::string>* warnings = nullptr);

/// Schedulers by `sched.type` that are not curves of LRScheduler (`curves()`): PyTorch's, and types that the program
/// adds. The number is the run's total of scheduler steps, if known.
using SchedulerRegistry =
    Registry<std::shared_ptr<Scheduler>(const SchedulerSpec&, Optimizer&, std::optional<std::int64_t>)>;
SchedulerRegistry& schedulers();

/// All names of `sched.type`, sorted.
std::vector<std::string> scheduler_names();

/// Adds warm-up and cool-down to a factory of schedules: removes both options before it calls the factory, then scales
/// the rates of the schedule. Unset: none.
SchedulerRegistry::Factory with_warmup(SchedulerRegistry::Factory factory);

/// The keys of `sched`.
std::vector<std::string> scheduler_keys();

/// @throws ConfigError when a scheduler or a curve has this name.
void check_scheduler_name_is_new(std::string_view name);

/// Registers a scheduler with additional options, as register_optimizer does: they become keys of `sched`.
template <class T>
void register_scheduler(std::string_view name, SchedulerRegistry::Factory factory) {
  check_scheduler_name_is_new(name);
  custom_scheduler_options().add<T>("scheduler.register", scheduler_keys());
  schedulers().add(name, std::move(factory));
}

/// @throws ConfigError when an option outside `known` is set, except `type`, `interval` and `monitor`.
void expect_options(const SchedulerSpec& spec, const std::vector<std::string>& known);

/// Builds the scheduler that `spec` describes, over `optimizer`, which must outlive it.
/// @throws ConfigError for a missing or unknown type, an option that the type does not have, or a schedule over a run
///         of unknown length.
std::shared_ptr<Scheduler> build_scheduler(const SchedulerSpec& spec, Optimizer& optimizer,
                                           std::optional<std::int64_t> total_steps = std::nullopt);

}  // namespace danling::inline v0::optim
