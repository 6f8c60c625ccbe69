#include "runner/schedules.hpp"

#include <algorithm>
#include <variant>
#include <vector>

#include <danling/optim/build.hpp>

namespace danling::inline v0 {

std::shared_ptr<optim::Scheduler> TorchRunnerBase::Schedules::build(const std::string& name,
                                                                    const optim::SchedulerSpec& spec,
                                                                    optim::Optimizer& optimizer) const {
  const auto at_least_one = [](std::optional<std::int64_t> total) {  // a run with nothing to do needs one
    return total ? std::optional(std::max<std::int64_t>(*total, 1)) : total;
  };
  const bool by_epoch = spec.interval_name() == "epoch";
  auto out =
      optim::build_scheduler(spec, optimizer, at_least_one(by_epoch ? length_in_epochs() : length_in_steps(name)));
  if (out->requires_metric() && !by_epoch) {
    out = optim::build_scheduler(spec, optimizer, at_least_one(length_in_epochs()));
  }
  return out;
}

void TorchRunnerBase::Schedules::check_interval(const optim::SchedulerSpec& spec, const optim::Scheduler& scheduler) {
  check<ConfigError>(spec.interval_name() != "step" || !scheduler.requires_metric(), "runner.build_scheduler",
                     "expected ", spec.section, ".interval epoch for a scheduler that needs a metric, got step");
}

std::optional<std::int64_t> TorchRunnerBase::Schedules::length_in_steps(const std::string& name) const {
  const std::optional<std::int64_t> total = runner_.steps();
  if (!total) {
    return total;
  }
  std::vector<std::int64_t> passes;
  for (const auto& split : runner_.train_splits()) {
    const data::LoaderBase* loader = runner_.find_loader(split);
    passes.push_back(loader == nullptr ? 0 : loader->length().value_or(0));
  }
  if (std::find(passes.begin(), passes.end(), 0) != passes.end()) {
    passes.clear();
  }
  return window_lengths().updates_in(*total, window_length(name), passes);
}

// Stepped once per epoch, or once per round over the splits.
std::optional<std::int64_t> TorchRunnerBase::Schedules::length_in_epochs() const {
  if (runner_.epochs()) {
    return runner_.epochs();
  }
  const auto total = runner_.steps();
  const auto per_epoch = runner_.steps_per_epoch();
  return total && per_epoch && *per_epoch > 0 ? std::optional((*total + *per_epoch - 1) / *per_epoch) : std::nullopt;
}

std::int64_t TorchRunnerBase::Schedules::window_length(const std::string& name) const {
  return name.empty() ? runner_.accum_steps()
                      : runner_.config().optim.for_name(name).accum_steps.value_or(runner_.accum_steps());
}

detail::WindowLengths TorchRunnerBase::Schedules::window_lengths() const {
  std::vector<std::int64_t> out;
  if (runner_.optimizer != nullptr || runner_.model || runner_.models.empty()) {
    out.push_back(window_length(""));
  }
  for (const auto& [name, handle] : runner_.models) {
    const auto bound = runner_.optimizers.find(name);
    if (bound != runner_.optimizers.end() ? bound->second != nullptr : handle.is_trainable()) {
      out.push_back(window_length(name));
    }
  }
  return detail::WindowLengths(std::move(out));
}

void TorchRunnerBase::Schedules::step_epoch(const Result& result) const {
  for (const Learner& learner : runner_.learners_) {
    if (learner.scheduler != nullptr && !learner.scheduler_by_step) {
      learner.scheduler->requires_metric() ? learner.scheduler->step(monitored(result, learner.name))
                                           : learner.scheduler->step();
    }
  }
}

double TorchRunnerBase::Schedules::monitored(const Result& result, const std::string& name) const {
  const std::string monitor = runner_.config().sched.for_name(name).monitor.value_or(runner_.config().score_name);
  const double* value = nullptr;
  if (monitor.find('.') == std::string::npos) {
    if (const auto split = runner_.score_split()) {
      value = result.number(concat(*split, ".", monitor));
    }
  }
  value = value != nullptr ? value : result.number(monitor);
  if (value == nullptr) {
    // A name without its split: uses the one split that has it.
    std::vector<std::string> found;
    for (const auto& [split, numbers] : result) {
      if (const auto* nested = std::get_if<Result>(&numbers); nested != nullptr && nested->number(monitor) != nullptr) {
        found.push_back(split);
        value = nested->number(monitor);
      }
    }
    check<ConfigError>(found.size() == 1, "runner.step_scheduler", "expected one split with the metric ",
                       quote(monitor), ", got [", join(found), "]; set sched.monitor to '<split>.<metric>'");
  }
  return *value;
}

}  // namespace danling::inline v0
