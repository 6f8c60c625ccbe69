#include "runner/console.hpp"

#include <danling/core/error.hpp>
#include <danling/runner/base_runner.hpp>

#include "runner/display.hpp"

namespace danling::inline v0::detail {

void ConsoleObserver::on_run_begin(const RunEvent& event) {
  logger_.info(concat("train: ", join(event.train_splits),
                      event.evaluate_splits.empty() ? "" : "; evaluate: ", join(event.evaluate_splits)));
}

void ConsoleObserver::start(const SplitEvent& event) {
  const auto& runner = event.runner;
  std::string label;
  if (event.mode != RunnerMode::train) {
    label = concat(event.mode == RunnerMode::evaluate ? "evaluate " : "infer ", event.split);
  } else if (const auto epochs = runner.epochs()) {
    label = concat(event.split, " epoch ", runner.state().train.epoch + 1, "/", *epochs);
  } else {
    label = concat(event.split, " steps to ", runner.steps().value_or(0));
  }
  progress_.start(std::move(label), event.total, event.done);
}

void ConsoleObserver::on_log(const LogEvent& event) {
  if (!event.iteration) {
    return;  // the result follows
  }
  std::vector<ProgressField> fields;
  for (const auto& [name, value] : event.values) {
    if (const auto* number = std::get_if<double>(&value)) {
      const double* average = event.averages.number(name);
      const bool varies = average != nullptr && name != "lr";
      fields.push_back({name, *number, varies ? std::optional<double>(*average) : std::nullopt});
    }
  }
  const auto rate = [&](std::string_view name) {
    const double* number = event.telemetry.number(name);
    return number != nullptr ? *number : 0.0;
  };
  const double time = rate("time");
  progress_.boundary(*event.iteration, std::move(fields), rate("samples_per_s"), "samples",
                     time > 0 ? rate("data_time") / time : 0.0);
}

void ConsoleObserver::on_result(const ResultEvent& event) {
  std::string text;
  for (const auto& [split, numbers] : event.result) {
    if (const auto* nested = std::get_if<Result>(&numbers)) {
      text += concat("  ", split);
      for (const auto& [name, value] : display_numbers(*nested)) {
        text += concat(" ", name, " ", value);
      }
    }
  }
  const auto total = event.runner.epochs();
  const bool best = event.results.score_split() && event.results.is_best();
  logger_.info(concat(event.runner.round_name(event.index), total ? concat("/", *total) : std::string(), text,
                      best ? "  (best)" : ""));
  logger_.flush();
}

}  // namespace danling::inline v0::detail
