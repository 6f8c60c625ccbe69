// Console output of a run: progress lines and results.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <danling/runner/callback.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/telemetry/progress.hpp>

namespace danling::inline v0::detail {

/// Writes to the logger: a line at each log boundary, live lines on a terminal, and a line for each result.
class ConsoleObserver : public Callback {
 public:
  explicit ConsoleObserver(Logger& logger) : logger_(logger), progress_(logger) {}

  std::string name() const override { return "console"; }
  void on_run_begin(const RunEvent& event) override;
  void on_run_end(const RunEvent&) override { end(); }
  void on_round_begin(const RoundEvent&) override;
  void on_train_begin(const SplitEvent& event) override;
  void on_train_end(const SplitEvent&) override;
  void on_evaluate_begin(const SplitEvent& event) override;
  void on_evaluate_end(const SplitEvent&) override { finish(); }
  void on_step(const StepEvent& event) override { progress_.update(event.done, event.time); }
  void on_log(const LogEvent& event) override;
  void on_result(const ResultEvent& event) override;
  void on_stop(const StopEvent&) override { end(); }
  void on_exception(const ExceptionEvent&) override { end(); }

  /// For loops that send no step events.
  Progress& progress() { return progress_; }
  /// Ends the display of the pass in progress.
  void finish() { progress_.finish(); }

 private:
  /// Lengths of the run, read once, so that drawing makes no virtual calls.
  struct Plan {
    std::optional<std::int64_t> epochs, steps, evaluate_interval;
    std::vector<std::pair<std::string, std::int64_t>> evaluations;  // splits with their numbers of batches; 0: unknown
  };

  void start(const SplitEvent& event);
  void end();
  ProgressRun place(const BaseRunner& runner) const;
  std::int64_t evaluations_left(const BaseRunner& runner, const std::string& split) const;

  Logger& logger_;
  Progress progress_;
  Plan plan_;
  bool trains_ = false;              // inside a training pass, which an evaluation may interrupt
  std::set<std::string> evaluated_;  // splits evaluated in this round
};

}  // namespace danling::inline v0::detail
