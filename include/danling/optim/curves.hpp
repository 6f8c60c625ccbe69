// Curves by name: the shapes of LRScheduler. Programs can add curves.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/core/registry.hpp>
#include <danling/optim/build.hpp>
#include <danling/optim/options.hpp>

namespace danling::inline v0::optim {

/// A shape between the base rate and the final rate. LRScheduler adds warm-up, cool-down and scaling.
struct Curve {
  /// Maps progress from 0 to 1 to the fraction of the way from the base rate (0) to the final rate (1). `options` are
  /// those of the schedule, with total_steps, warmup_steps and cooldown_steps set. Called once per step and group, and
  /// at any position for previews: depend on nothing else.
  std::function<double(double progress, const SchedulerSpec& options)> fraction;
  std::vector<std::string> options = {};  ///< options that the curve reads besides those of LRScheduler
  SchedulerSpec defaults = {};            ///< the curve's values of unset options
};

/// Curves by `sched.type`: linear, cosine, constant, polynomial, exponential, inverse_sqrt, wsd, and those of the
/// program:
///
///     optim::curves().add("square", [](const auto&) { return optim::Curve{[](double p, auto&) { return p * p; }}; });
///
/// A factory gets the options with total_steps set, and throws ConfigError for options that the curve cannot use.
using CurveRegistry = Registry<Curve(const SchedulerSpec& options)>;
CurveRegistry& curves();

/// Registers a curve with additional options, as register_scheduler does: they become keys of `sched`, and
/// `Curve::options` must list them too. @throws ConfigError when the name or a key is taken.
template <class T>
void register_curve(std::string_view name, CurveRegistry::Factory factory) {
  check_scheduler_name_is_new(name);
  custom_scheduler_options().add<T>("scheduler.register", scheduler_keys());
  curves().add(name, std::move(factory));
}

}  // namespace danling::inline v0::optim
