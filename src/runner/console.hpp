// Console output of a run: progress lines and results.
#pragma once

#include <danling/runner/callback.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/telemetry/progress.hpp>

namespace danling::inline v0::detail {

/// Writes to the logger: a line at each log boundary, rewritten in place on a terminal, and one for each result.
class ConsoleObserver : public Callback {
 public:
  explicit ConsoleObserver(Logger& logger) : logger_(logger), progress_(logger) {}

  std::string name() const override { return "console"; }
  void on_run_begin(const RunEvent& event) override;
  void on_train_begin(const SplitEvent& event) override { start(event); }
  void on_train_end(const SplitEvent&) override { finish(); }
  void on_evaluate_begin(const SplitEvent& event) override { start(event); }
  void on_evaluate_end(const SplitEvent&) override { finish(); }
  void on_step(const StepEvent& event) override { progress_.update(event.done, event.time); }
  void on_log(const LogEvent& event) override;
  void on_result(const ResultEvent& event) override;
  void on_stop(const StopEvent&) override { finish(); }

  /// The step of a loop that sends no step events.
  Progress& progress() { return progress_; }
  void finish() { progress_.finish(); }

 private:
  void start(const SplitEvent& event);

  Logger& logger_;
  Progress progress_;
};

}  // namespace danling::inline v0::detail
