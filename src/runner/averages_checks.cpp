// Warnings about averages that a run never computes.
#include <danling/telemetry/logger.hpp>

#include <runner/averages.hpp>
#include <runner/schedules.hpp>

namespace danling::inline v0 {

std::vector<TorchRunnerBase::Internals::Averages::Missing> TorchRunnerBase::Internals::Averages::missing() {
  std::vector<Missing> out;
  const auto add = [&](const std::string& name, const char* key, const std::optional<optim::WeightAverage>& average,
                       std::optional<std::int64_t> interval, const char* unit, std::optional<std::int64_t> total) {
    if (average && !average->has_average()) {
      const std::string section = name.empty() ? std::string(key) : concat(key, ".", name);
      out.push_back({section, unit, average->start(), interval.value_or(1), total});
    }
  };
  for (const auto& [name, averages] : all().models) {
    add(name, "ema", averages.ema, runner_.config().ema.for_name(name).interval, "update",
        Schedules(runner_).length_in_steps(name));
    add(name, "swa", averages.swa, averages.swa_options.interval, by_epochs() ? "epoch" : "update", units(name));
  }
  return out;
}

void TorchRunnerBase::Internals::Averages::warn_never() {
  for (const Missing& average : missing()) {
    if (average.is_never() && runner_.warned_.insert(concat("never ", average.section)).second) {
      runner_.logger().warning(concat("runner.averages: expected an average of ", average.section,
                                      " within the run, got none: with ", average.section, ".start ", average.start,
                                      " and ", average.section, ".interval ", average.interval, " the first is at ",
                                      average.unit, " ", average.first(), ", and the run has ", *average.total,
                                      "; lower them"));
    }
  }
}

void TorchRunnerBase::Internals::Averages::end() {
  if (runner_.averages_ == nullptr || !runner_.requests_.ended) {
    return;
  }
  for (const Missing& average : missing()) {
    if (!average.is_never()) {
      runner_.logger().warning(concat("runner.averages: the run has ended before the first average of ",
                                      average.section, ", at ", average.unit, " ", average.first(),
                                      ": its results and exports do not use it"));
    }
  }
}

}  // namespace danling::inline v0
