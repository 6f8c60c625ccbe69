#include <runner/sink_feed.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <system_error>
#include <utility>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/telemetry/metrics_lines.hpp>
#include <danling/workspace/workspace.hpp>

namespace danling::inline v0::detail {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void flatten(const ConfigTree& tree, const std::string& prefix, std::vector<std::pair<std::string, std::string>>& out) {
  if (!tree.is_map()) {
    std::string text = tree.is_string() ? tree.string() : to_yaml(tree);
    text.erase(text.find_last_not_of('\n') + 1);
    out.emplace_back(prefix, std::move(text));
    return;
  }
  for (const auto& entry : tree.map()) {
    const std::string& key = entry.key.string();
    flatten(entry.value, prefix.empty() ? key : concat(prefix, ".", key), out);
  }
}

}  // namespace

void SinkFeed::add(std::shared_ptr<Sink> sink) {
  check<ConfigError>(sink != nullptr, "runner.add_sink", "expected a sink, got null");
  sinks_.push_back(std::move(sink));
  if (begun_) {
    info_.lines = lines_;
    start(sinks_.back());
  }
}

void SinkFeed::start(std::shared_ptr<Sink> sink) {
  ++started_;
  const bool wants_histograms = sink->wants_histograms();
  const std::string name = sink->name();
  try {
    threads_.push_back(
        {std::make_unique<SinkThread>(std::move(sink),
                                      [this](LogLevel level, const std::string& text) { logger_.log(level, text); }),
         wants_histograms});
    threads_.back().thread->begin(info_);
  } catch (const std::system_error& error) {  // no thread is available
    logger_.warning(concat(name, ": ", error.what(), "; training continues without this sink"));
  }
}

Result time_stamp() {
  Result out;
  out.set("timestamp", std::round(seconds_now() * 1e3) / 1e3);
  return out;
}

RunInfo SinkFeed::describe(BaseRunner& runner) const {
  const RunnerConfig& config = runner.config();
  RunInfo out;
  out.name = runner.name();
  out.id = runner.id();
  out.lineage = config.lineage;
  out.experiment = config.experiment;
  out.timestamp = runner.timestamp();
  if (runner.workspace().is_open()) {
    out.dir = runner.workspace().dir();
    out.metrics_file = runner.workspace().metrics_file();
  }
  out.config = to_yaml(to_tree(config));
  flatten(semantic_tree(config), "", out.hparams);
  out.train_splits = train_splits_;
  out.time = seconds_now();
  return out;
}

void SinkFeed::begin(BaseRunner& runner, std::int64_t lines, std::optional<std::int64_t> step) {
  lines_ = lines;
  const bool first = !std::exchange(begun_, true);
  if (first) {
    info_ = describe(runner);
  }
  info_.lines = lines;
  info_.global_step = step.value_or(runner.state().train.global_step);
  for (const Entry& entry : threads_) {
    entry.thread->begin(info_);
  }
  while (started_ < sinks_.size()) {
    start(sinks_[started_]);
  }
}

void SinkFeed::on_run_begin(const RunEvent& event) {
  end_ = EndRecord{.status = "stopped", .global_step = event.runner.state().train.global_step};
  keep_best(event.runner.results());
  train_splits_ = event.train_splits;
  const std::int64_t lines = recorded_lines_().value_or(lines_);
  if (!sinks_.empty() && event.runner.is_main_process() && (!begun_ || restored_to_ || lines != lines_)) {
    restored_to_.reset();
    begin(event.runner, lines);
  }
}

void SinkFeed::on_restore(const RestoreEvent& event) { restored_to_ = event.runner.state().train.global_step; }

// The lines of metrics.jsonl are cut after the event.
void SinkFeed::follow_restore(BaseRunner& runner, std::int64_t lines) {
  if (const auto step = std::exchange(restored_to_, std::nullopt); step && begun_) {
    begin(runner, lines, step);
  }
}

void SinkFeed::end_at(const Event& event, const std::string& status, const std::string& error) {
  set_status(status, error);
  end_.global_step = event.runner.state().train.global_step;
}

void SinkFeed::keep_best(const ResultHistory& results) {
  if (const auto* row = results.best() != nullptr ? results.best() : results.latest()) {
    end_.metrics = row->result.flatten("/");
  }
}

void SinkFeed::on_log(const LogEvent& event) {
  if (event.iteration && event.mode != RunnerMode::train) {
    return;  // progress lines of an evaluation are not recorded
  }
  post_line(event.runner, {.split = event.split,
                           .mode = std::string(to_string(event.mode)),
                           .epoch = event.runner.state().train.epoch,
                           .global_step = event.runner.state().train.global_step,
                           .iteration = event.iteration,
                           .values = event.values,
                           .telemetry = event.telemetry});
}

void SinkFeed::post_line(BaseRunner& runner, ScalarRecord record) {
  const auto recorded = recorded_lines_();
  if (!begun_) {
    if (sinks_.empty() || !recorded || !runner.is_main_process()) {
      return;
    }
    begin(runner, *recorded - 1);  // this process has taken over from the main one
  }
  follow_restore(runner, recorded.value_or(lines_ + 1) - 1);
  lines_ = recorded.value_or(lines_ + 1);
  record.line = lines_;
  take_time(record);
  const bool final = !record.iteration;
  send(std::make_shared<SinkItem>(std::move(record), final));
}

void SinkFeed::on_result(const ResultEvent& event) {
  if (!begun_) {
    return;
  }
  const bool best = event.results.score_split() && event.results.is_best();
  ResultRecord record{.number = event.runner.round_number(event.index), .result = event.result, .best = best};
  keep_best(event.results);
  post(event.runner, std::move(record));
}

SinkFeed::Place SinkFeed::here(const BaseRunner& runner) const {
  return {seconds_now(), runner.state().train.global_step, lines_, in_step_()};
}

void SinkFeed::put(SinkRecord& record, const Place& place) {
  std::visit(
      [&](auto& any) {
        any.time = place.time;
        any.global_step = place.global_step;
        if constexpr (requires { any.line; }) {
          any.line = place.line;
        }
        if constexpr (requires { any.in_step; }) {
          any.in_step = place.in_step;
        }
      },
      record);
}

void SinkFeed::post(BaseRunner& runner, SinkRecord record) {
  if (begun_) {
    follow_restore(runner, recorded_lines_().value_or(lines_));
    put(record, here(runner));
    send(std::make_shared<SinkItem>(std::move(record)));
  }
}

void SinkFeed::post_late(BaseRunner& runner, std::size_t bytes, bool histogram, std::function<SinkRecord()> make) {
  if (begun_) {
    follow_restore(runner, recorded_lines_().value_or(lines_));
    const auto build = [make = std::move(make), place = here(runner)] {
      SinkRecord record = make();
      put(record, place);
      return record;
    };
    send(std::make_shared<SinkItem>(build, bytes), histogram);
  }
}

void SinkFeed::send(const std::shared_ptr<const SinkItem>& item, bool histogram) {
  for (const Entry& entry : threads_) {
    if (!histogram || entry.wants_histograms) {
      entry.thread->post(item);
    }
  }
}

void SinkFeed::set_status(const std::string& status, const std::string& error) {
  end_.status = status;
  end_.error = error;
}

void SinkFeed::close(std::chrono::milliseconds most) {
  if (begun_) {
    end_.time = seconds_now();
    send(std::make_shared<SinkItem>(end_, /*final=*/true));
    begun_ = false;
  }
  for (const Entry& entry : threads_) {
    entry.thread->begin_close();
  }
  const auto until = std::chrono::steady_clock::now() + most;
  for (const Entry& entry : threads_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    entry.thread->close(std::max(left, std::chrono::milliseconds(0)));
  }
}

}  // namespace danling::inline v0::detail
