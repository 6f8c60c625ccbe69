#include <runner/console.hpp>

#include <algorithm>

#include <danling/core/error.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/telemetry/text.hpp>

#include <runner/display.hpp>

namespace danling::inline v0::detail {

void ConsoleObserver::on_run_begin(const RunEvent& event) {
  const BaseRunner& runner = event.runner;
  logger_.info(concat("train: ", join(event.train_splits),
                      event.evaluate_splits.empty() ? "" : "; evaluate: ", join(event.evaluate_splits)));
  plan_ = {runner.epochs(), runner.steps(), runner.config().evaluate_interval, {}};
  for (const auto& split : event.evaluate_splits) {
    std::int64_t batches = runner.split_length(split).value_or(0);
    if (!plan_.epochs && plan_.steps && !plan_.evaluate_interval) {  // the final evaluation covers part of a split
      const std::int64_t part = std::max<std::int64_t>(*plan_.steps / 20, 1);
      if (batches > part) {
        logger_.info(concat("evaluate: the run ends with ", part, " of ", batches, " batches of split ", quote(split),
                            " (steps / 20); set evaluate_interval to evaluate the whole split"));
      }
      batches = batches > 0 ? std::min(batches, part) : part;
    }
    plan_.evaluations.emplace_back(split, batches);
  }
  evaluated_.clear();
  progress_.begin_run([this, &runner] { return place(runner); });
}

ProgressRun ConsoleObserver::place(const BaseRunner& runner) const {
  const RunnerTrainState& train = runner.state().train;
  ProgressRun out;
  if (plan_.epochs) {
    out.label = concat("epoch ", std::min(train.epoch + 1, *plan_.epochs), "/", *plan_.epochs);
  } else {
    out.label = concat("step ", format_count(train.global_step), plan_.steps ? "/" : "",
                       plan_.steps ? format_count(*plan_.steps) : std::string());
  }
  out.done = static_cast<double>(train.global_step);
  out.total = static_cast<double>(plan_.steps.value_or(0));
  for (const auto& [split, batches] : plan_.evaluations) {
    out.evaluations.push_back({split, evaluations_left(runner, split), batches});
  }
  out.limit = runner.seconds_to_time_limit();
  return out;
}

// Not counting an evaluation in progress.
std::int64_t ConsoleObserver::evaluations_left(const BaseRunner& runner, const std::string& split) const {
  const RunnerTrainState& train = runner.state().train;
  if (plan_.epochs) {
    return *plan_.epochs - train.epoch - (evaluated_.contains(split) ? 1 : 0);
  }
  if (!plan_.steps || train.global_step >= *plan_.steps) {
    return 0;
  }
  if (!plan_.evaluate_interval) {
    return 1;
  }
  const std::int64_t interval = *plan_.evaluate_interval;
  return *plan_.steps / interval - train.global_step / interval + (*plan_.steps % interval != 0 ? 1 : 0);
}

void ConsoleObserver::on_round_begin(const RoundEvent&) {
  evaluated_.clear();
  trains_ = false;  // an error may have ended a pass
}

void ConsoleObserver::on_train_begin(const SplitEvent& event) {
  trains_ = true;
  start(event);
}

void ConsoleObserver::on_train_end(const SplitEvent&) {
  trains_ = false;
  finish();
}

void ConsoleObserver::on_evaluate_begin(const SplitEvent& event) {
  if (!trains_) {
    evaluated_.insert(event.split);
  }
  start(event);
}

void ConsoleObserver::start(const SplitEvent& event) {
  const auto& runner = event.runner;
  ProgressPass pass{.label = {},
                    .name = event.split,
                    .split = event.split,
                    .trains = event.mode == RunnerMode::train,
                    .total = event.total,
                    .done = event.done};
  if (!pass.trains) {
    pass.name = concat(event.mode == RunnerMode::evaluate ? "evaluate " : "infer ", event.split);
    pass.label = pass.name;
  } else if (const auto epochs = runner.epochs()) {
    pass.label = concat(event.split, " epoch ", runner.state().train.epoch + 1, "/", *epochs);
  } else {
    const auto steps = runner.steps();
    pass.label = concat(event.split, steps ? concat(" steps to ", *steps) : " step");
  }
  progress_.start(pass);
}

void ConsoleObserver::end() {
  finish();
  progress_.end_run();
  trains_ = false;
}

void ConsoleObserver::on_log(const LogEvent& event) {
  if (!event.iteration) {
    return;  // the result line follows
  }
  ProgressNumbers numbers;
  for (const auto& [name, value] : event.values) {
    if (const auto* number = std::get_if<double>(&value)) {
      const double* average = event.averages.number(name);
      const bool varies = average != nullptr && name != "lr";
      numbers.fields.push_back({name, *number, varies ? std::optional<double>(*average) : std::nullopt});
    }
  }
  const auto of = [&](std::string_view name) {
    const double* number = event.telemetry.number(name);
    return number != nullptr ? *number : 0.0;
  };
  numbers.samples_per_s = of("samples_per_s");
  numbers.tokens_per_s = of("tokens_per_s");
  numbers.data_share = of("time") > 0 ? of("data_time") / of("time") : 0.0;
  numbers.host_mb = of("mem_host_mb");
  numbers.device_mb = of("mem_alloc_mb");
  numbers.reserved_mb = of("mem_reserved_mb");
  progress_.boundary(*event.iteration, std::move(numbers));
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
