// The metrics that schedules need, and the log line of each schedule.
#include <algorithm>
#include <cmath>

#include <danling/core/detail/suggest.hpp>
#include <danling/optim/schedule_summary.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/checks.hpp>
#include <runner/schedules.hpp>
#include <runner/score_names.hpp>

namespace danling::inline v0 {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

optim::SchedulerSpec TorchRunnerBase::Internals::Schedules::spec_of(const std::string& name) const {
  const SchedConfig& sched = runner_.config().sched;
  return name.empty() ? static_cast<optim::SchedulerSpec>(sched) : sched.for_name(name);
}

std::string TorchRunnerBase::Internals::Schedules::monitor_of(const std::string& name) const {
  return spec_of(name).monitor.value_or(runner_.config().score_name);
}

void TorchRunnerBase::Internals::Schedules::check_monitor(const optim::SchedulerSpec& spec,
                                                          const optim::Scheduler& scheduler) const {
  static constexpr auto where = "runner.build_scheduler";
  if (!scheduler.requires_metric()) {
    check<ConfigError>(!spec.monitor, where, "expected no ", spec.section,
                       ".monitor for a schedule that needs no metric, got ", quote(spec.monitor.value_or("")));
    return;
  }
  const auto splits = measured_splits();
  const std::string monitor = spec.monitor.value_or(runner_.config().score_name);
  const std::size_t dot = monitor.find('.');
  const std::string split = monitor.substr(0, dot);
  // The losses of a criterion with several terms are `losses.<term>`.
  check<ConfigError>(dot == std::string::npos || splits.empty() || split == "losses" || contains(splits, split), where,
                     "expected ", spec.section, ".monitor <split>.<metric> with one of the splits [", join(splits),
                     "], got ", quote(monitor), did_you_mean(split, splits));
}

std::vector<std::string> TorchRunnerBase::Internals::Schedules::measured_splits() const {
  std::vector<std::string> out = runner_.train_splits();
  for (const auto& split : runner_.evaluate_splits()) {
    if (!contains(out, split)) {
      out.push_back(split);
    }
  }
  return out;
}

std::pair<std::string, std::string> TorchRunnerBase::Internals::Schedules::parts_of(const std::string& monitor) const {
  const std::size_t dot = monitor.find('.');
  if (dot == std::string::npos || !contains(measured_splits(), monitor.substr(0, dot))) {
    return {runner_.score_split().value_or(""), monitor};
  }
  return {monitor.substr(0, dot), monitor.substr(dot + 1)};
}

void TorchRunnerBase::Internals::Schedules::check_evaluations() const {
  for (const Learner& learner : runner_.learners_) {
    if (learner.scheduler == nullptr || !learner.scheduler->requires_metric() || !runner_.is_step_mode() ||
        runner_.config().evaluate_interval) {
      continue;
    }
    const std::string monitor = monitor_of(learner.name);
    const std::string split = parts_of(monitor).first;
    check<ConfigError>(split.empty() || contains(runner_.train_splits(), split), "runner.train",
                       "expected evaluate_interval with steps for ", spec_of(learner.name).section, ".monitor ",
                       quote(monitor), ", which is measured on split ", quote(split), ", got none");
  }
}

void TorchRunnerBase::Internals::Schedules::check_host_loop() const {
  for (const Learner& learner : runner_.learners_) {
    const auto spec = spec_of(learner.name);
    check<ConfigError>(
        learner.scheduler == nullptr || learner.scheduler_by_step || learner.scheduler->requires_metric(),
        "runner.train_on_batch", "expected ", spec.section, ".interval step in a loop of the program, got ",
        quote(spec.interval.value_or("")));
  }
}

std::optional<optim::ScheduleSummary> TorchRunnerBase::Internals::Schedules::outline(const Learner& learner,
                                                                                     std::size_t group) const {
  const optim::Scheduler& schedule = *learner.scheduler;
  const auto run = learner.scheduler_by_step ? length_in_steps(learner.name) : length_in_epochs();
  const auto updates = schedule.length() ? schedule.length() : run;
  return updates && *updates > 0 ? optim::summarize_schedule(schedule, *updates, group) : std::nullopt;
}

std::size_t TorchRunnerBase::Internals::Schedules::highest_group(const optim::Scheduler& schedule) {
  const auto& base = schedule.base_lrs();
  return static_cast<std::size_t>(std::max_element(base.begin(), base.end()) - base.begin());
}

std::string TorchRunnerBase::Internals::Schedules::text(const Learner& learner) const {
  const optim::Scheduler& schedule = *learner.scheduler;
  const auto& base = schedule.base_lrs();
  const std::size_t group = highest_group(schedule);
  const std::string step = learner.scheduler_by_step ? "step" : "epoch";
  const std::string type = spec_of(learner.name).type_name();
  std::string out = concat("schedule", learner.name.empty() ? "" : concat(" of ", learner.name), ": ",
                           type.empty() ? "the program's" : type);
  if (const auto outlined = outline(learner, group)) {
    out += concat(" over ", outlined->updates, " ", step, "s, learning rate ", outlined->text(step));
  } else {
    out += concat(", learning rate ", optim::format_rate(schedule.get_last_lr()[group]), " at first",
                  schedule.requires_metric() ? concat(", then by ", monitor_of(learner.name)) : "");
  }
  return base.size() > 1 ? concat(out, " (the highest of ", base.size(), " groups)") : out;
}

void TorchRunnerBase::Internals::Checks::log_schedules() const {
  for (const Learner& learner : runner_.learners_) {
    if (learner.scheduler != nullptr && !learner.scheduler->base_lrs().empty() &&
        runner_.warned_.insert(concat("schedule of ", learner.name)).second) {
      const Schedules schedules(runner_);
      runner_.logger().info(schedules.text(learner));
      const std::size_t group = Schedules::highest_group(*learner.scheduler);
      const double base = learner.scheduler->base_lrs()[group];
      const auto outline = schedules.outline(learner, group);
      if (outline && outline->highest < 1e-3 * base) {
        runner_.logger().warning(concat(
            schedules.spec_of(learner.name).section, " never reaches a thousandth of the learning rate ",
            optim::format_rate(base), "; percentile scaling to 0 stays at 0: set scaling: numerical to decay to zero"));
      }
    }
  }
}

void TorchRunnerBase::Internals::Checks::evaluations_of_host() const {
  static constexpr auto advice =
      "; call evaluate_on_batch and finish_evaluation, or set evaluate_interval and a dataset";
  const Schedules schedules(runner_);
  for (const Learner& learner : runner_.learners_) {
    if (learner.scheduler != nullptr && learner.scheduler->requires_metric() && learner.scheduler->last_epoch() == 0) {
      runner_.logger().warning(concat("no evaluation had the metric ", quote(schedules.monitor_of(learner.name)),
                                      ", so ", schedules.spec_of(learner.name).section,
                                      " never changed the learning rate", advice));
    }
  }
  if (std::isfinite(runner_.config().patience) && runner_.results_.scores().empty()) {
    runner_.logger().warning(
        concat("patience had no effect: no evaluation had the score ", quote(runner_.config().score_name), advice));
  }
}

void TorchRunnerBase::Internals::Checks::monitors() const {
  const Schedules schedules(runner_);
  for (const Learner& learner : runner_.learners_) {
    if (learner.scheduler == nullptr || !learner.scheduler->requires_metric()) {
      continue;
    }
    const optim::SchedulerSpec spec = schedules.spec_of(learner.name);
    auto [split, name] = schedules.parts_of(schedules.monitor_of(learner.name));
    const auto& own = contains(runner_.evaluate_splits(), split) ? runner_.evaluate_metrics : runner_.train_metrics;
    const MetricsBase* metrics = own != nullptr ? own.get() : runner_.metrics.get();
    const auto names = declared_names(metrics);
    const auto measured = schedules.measured_splits();
    check<ConfigError>(!split.empty() || measured.size() < 2 || !names || !detail::may_hold(*names, name),
                       "runner.train", "expected ", spec.section, ".monitor <split>.<metric> with one of the splits [",
                       join(measured), "], got ", quote(name));
    if (names && !detail::may_hold(*names, name) && measured.empty()) {
      name.erase(0, name.find('.') + 1);  // of a split that the program names later
    }
    if (spec.monitor && names && !detail::may_hold(*names, name)) {
      // A meter that the step updates has a name without a dot.
      check<ConfigError>(name.find('.') == std::string::npos, "runner.train", "expected one of [", join(*names),
                         "] for ", spec.section, ".monitor, got ", quote(name), did_you_mean(name, *names));
      if (runner_.warned_.insert(concat("monitor ", learner.name)).second) {
        runner_.logger().warning(concat(spec.section, ".monitor: expected one of [", join(*names),
                                        "], or a meter that the step updates, got ", quote(name),
                                        did_you_mean(name, *names)));
      }
    }
    const bool higher =
        !name.starts_with("losses.") && metrics != nullptr && metrics->higher_is_better(name).value_or(false);
    if (higher && spec.mode.value_or("min") == "min" && spec.type_name().starts_with("reduce") &&
        runner_.warned_.insert(concat("mode ", learner.name)).second) {
      runner_.logger().warning(concat(spec.section, ".mode is min, and ", quote(name),
                                      " is better when it is higher; set ", spec.section, ".mode: max"));
    }
  }
}

}  // namespace danling::inline v0
