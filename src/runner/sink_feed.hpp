// Sends the events of a run to its sinks as records.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/runner/callback.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/telemetry/sink_thread.hpp>

namespace danling::inline v0::detail {

/// The telemetry of a line: "timestamp", seconds since 1970 with three decimal places.
Result time_stamp();

/// On the main process, from the start of training on. Each sink has a thread; see SinkThread.
class SinkFeed : public Callback {
 public:
  /// @param recorded_lines  lines of metrics.jsonl, including unwritten ones; empty if none is written
  /// @param in_step  true while a step or window is open
  SinkFeed(Logger& logger, std::function<std::optional<std::int64_t>()> recorded_lines, std::function<bool()> in_step)
      : logger_(logger), recorded_lines_(std::move(recorded_lines)), in_step_(std::move(in_step)) {}

  /// @throws ConfigError for null
  void add(std::shared_ptr<Sink> sink);
  /// True when there are sinks that take records now.
  bool is_active() const { return begun_ && !sinks_.empty(); }

  std::string name() const override { return "sinks"; }
  void on_run_begin(const RunEvent& event) override;
  void on_run_end(const RunEvent& event) override { end_at(event, "finished"); }
  void on_log(const LogEvent& event) override;
  void on_result(const ResultEvent& event) override;
  void on_restore(const RestoreEvent& event) override;
  void on_stop(const StopEvent& event) override { end_at(event, "stopped"); }
  void on_exception(const ExceptionEvent& event) override { end_at(event, "crashed", event.error.what()); }

  /// Sets the run's final status, if it differs from that of training.
  void set_status(const std::string& status, const std::string& error);
  /// Sends a record of the program, at the current step; no effect before training begins.
  void post(BaseRunner& runner, SinkRecord record);
  /// Sends a record of `bytes` that a sink's thread builds with `make`; it may be dropped.
  void post_late(BaseRunner& runner, std::size_t bytes, bool histogram, std::function<SinkRecord()> make);
  /// Sends a line of metrics.jsonl, which is already appended if there is a file.
  void post_line(BaseRunner& runner, ScalarRecord record);
  const EndRecord& end() const { return end_; }
  /// Sends the end and waits for the sinks, at most for `most`.
  void close(std::chrono::milliseconds most);

 private:
  /// Position of a record without a line in metrics.jsonl.
  struct Place {
    double time;
    std::int64_t global_step, line;
    bool in_step;
  };

  void begin(BaseRunner& runner, std::int64_t lines, std::optional<std::int64_t> step = std::nullopt);
  void end_at(const Event& event, const std::string& status, const std::string& error = "");
  void start(std::shared_ptr<Sink> sink);
  void follow_restore(BaseRunner& runner, std::int64_t lines);
  RunInfo describe(BaseRunner& runner) const;
  void keep_best(const ResultHistory& results);
  void send(const std::shared_ptr<const SinkItem>& item, bool histogram = false);
  Place here(const BaseRunner& runner) const;
  static void put(SinkRecord& record, const Place& place);

  Logger& logger_;
  std::function<std::optional<std::int64_t>()> recorded_lines_;
  std::function<bool()> in_step_;
  std::vector<std::shared_ptr<Sink>> sinks_;
  struct Entry {
    std::unique_ptr<SinkThread> thread;
    bool wants_histograms;
  };
  std::vector<Entry> threads_;  // by sink, once training has begun here
  std::size_t started_ = 0;     // sinks that have a thread, or whose thread could not start
  RunInfo info_;
  std::vector<std::string> train_splits_;
  EndRecord end_{.status = "stopped"};
  bool begun_ = false;
  std::optional<std::int64_t> restored_to_;  // step of a checkpoint that was loaded since the last record
  std::int64_t lines_ = 0;                   // of metrics.jsonl; counted here if none is written
};

}  // namespace danling::inline v0::detail
