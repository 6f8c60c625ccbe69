// Schedules of the models in training: their lengths, and their steps by epoch.
#include <runner/schedules.hpp>

#include <algorithm>
#include <variant>
#include <vector>

#include <danling/core/detail/suggest.hpp>
#include <danling/optim/build.hpp>

#include <runner/score_names.hpp>

namespace danling::inline v0 {
namespace {

std::vector<std::string> splits_with(const Result& result, const std::string& metric) {
  std::vector<std::string> out;
  for (const auto& [split, numbers] : result) {
    if (const auto* nested = std::get_if<Result>(&numbers); nested != nullptr && nested->number(metric) != nullptr) {
      out.push_back(split);
    }
  }
  return out;
}

}  // namespace

std::shared_ptr<optim::Scheduler> TorchRunnerBase::Internals::Schedules::build(const std::string& name,
                                                                               const optim::SchedulerSpec& spec,
                                                                               optim::Optimizer& optimizer) const {
  const auto at_least_one = [](std::optional<std::int64_t> total) {  // a run with nothing to do still needs one
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

void TorchRunnerBase::Internals::Schedules::check_interval(const optim::SchedulerSpec& spec,
                                                           const optim::Scheduler& scheduler) const {
  check<ConfigError>(spec.interval_name() != "step" || !scheduler.requires_metric(), "runner.build_scheduler",
                     "expected ", spec.section, ".interval epoch for a scheduler that needs a metric, got step");
  check_monitor(spec, scheduler);
}

std::optional<std::int64_t> TorchRunnerBase::Internals::Schedules::length_in_steps(const std::string& name) const {
  const std::optional<std::int64_t> total = runner_.steps();
  if (!total) {
    return total;
  }
  std::vector<std::int64_t> passes;
  for (const auto& split : runner_.train_splits()) {
    const data::LoaderBase* loader = runner_.find_loader(split);
    passes.push_back(loader == nullptr ? 0 : loader->num_steps().value_or(0));
  }
  if (std::find(passes.begin(), passes.end(), 0) != passes.end()) {
    passes.clear();
  }
  return window_lengths().updates_in(*total, window_length(name), passes);
}

// Stepped once per epoch, or once per round over the splits.
std::optional<std::int64_t> TorchRunnerBase::Internals::Schedules::length_in_epochs() const {
  if (runner_.epochs()) {
    return runner_.epochs();
  }
  const auto total = runner_.steps();
  const auto per_epoch = runner_.steps_per_epoch();
  return total && per_epoch && *per_epoch > 0 ? std::optional((*total + *per_epoch - 1) / *per_epoch) : std::nullopt;
}

std::int64_t TorchRunnerBase::Internals::Schedules::window_length(const std::string& name) const {
  return name.empty() ? runner_.accum_steps()
                      : runner_.config().optim.for_name(name).accum_steps.value_or(runner_.accum_steps());
}

detail::WindowLengths TorchRunnerBase::Internals::Schedules::window_lengths() const {
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

std::vector<std::string> TorchRunnerBase::Internals::Schedules::step_epoch(const Result& result, bool evaluated) const {
  std::vector<std::string> warnings;
  for (const Learner& learner : runner_.learners_) {
    if (learner.scheduler == nullptr || learner.scheduler_by_step) {
      continue;
    }
    if (!learner.scheduler->requires_metric()) {
      learner.scheduler->step();
    } else if (evaluated || !runner_.config().evaluate_interval) {
      const std::string monitor = monitor_of(learner.name);
      if (const double* value = find_monitored(result, monitor)) {
        learner.scheduler->step(*value);
      } else {  // a warning, since an error would lose the training so far
        const auto splits = splits_with(result, monitor);
        const auto names = splits.empty() ? detail::number_names(result) : splits;
        warnings.push_back(concat(spec_of(learner.name).section, ".monitor: expected ",
                                  splits.empty() ? "the metric " : "one split with the metric ", quote(monitor),
                                  ", got [", join(names), "]; the learning rate does not change",
                                  splits.empty() ? did_you_mean(monitor, names) : "; name '<split>.<metric>'"));
      }
    }
  }
  return warnings;
}

void TorchRunnerBase::Internals::Schedules::step_evaluation(const Result& row) const {
  const std::string scored = runner_.results().score_split().value_or("");
  for (const Learner& learner : runner_.learners_) {
    if (learner.scheduler != nullptr && learner.scheduler->requires_metric()) {
      const std::string monitor = monitor_of(learner.name);
      const double* value = find_monitored(row, monitor);
      // A name without a split means the split that selects the best: the program may evaluate others too.
      if (value != nullptr && (row.number(monitor) != nullptr || row.contains(scored))) {
        learner.scheduler->step(*value);
      }
    }
  }
}

const double* TorchRunnerBase::Internals::Schedules::find_monitored(const Result& result,
                                                                    const std::string& monitor) const {
  if (parts_of(monitor).second == monitor) {
    if (const auto split = runner_.score_split()) {
      if (const double* value = result.number(concat(*split, ".", monitor))) {
        return value;
      }
    }
  }
  if (const double* value = result.number(monitor)) {
    return value;
  }
  const auto found = splits_with(result, monitor);  // a name without a split, found in one split only
  return found.size() == 1 ? result.number(concat(found[0], ".", monitor)) : nullptr;
}

}  // namespace danling::inline v0
