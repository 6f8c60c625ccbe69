// Connects a heartbeat to the events of a run.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <danling/core/signals.hpp>
#include <danling/runner/callback.hpp>
#include <danling/runner/state.hpp>
#include <danling/telemetry/heartbeat.hpp>

namespace danling::inline v0::detail {

/// Publishes the counters of a run between two steps.
void mark(LoopProgress& progress, const RunnerState& state);

class HeartbeatCallback : public Callback {
 public:
  HeartbeatCallback(HeartbeatOptions options, std::shared_ptr<const LoopProgress> progress)
      : heartbeat_(std::move(options), std::move(progress)) {}

  std::string name() const override { return "heartbeat"; }
  void on_exception(const ExceptionEvent&) override { terminate("exception"); }

  /// Called before the save of a stop. @param signal  0: the time limit
  void stop_begins(int signal) { terminate(signal == 0 ? std::string("time_limit") : signal_name(signal)); }
  void set_rank(std::int64_t rank, std::int64_t local_rank, std::int64_t world_size) {
    heartbeat_.set_rank(rank, local_rank, world_size);
  }
  void close() { heartbeat_.stop(last_event_); }

 private:
  void terminate(const std::string& event) {
    last_event_ = event;
    heartbeat_.set_status("terminating", event);
  }

  Heartbeat heartbeat_;
  std::string last_event_ = "shutdown";
};

}  // namespace danling::inline v0::detail
