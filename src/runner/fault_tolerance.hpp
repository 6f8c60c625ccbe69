// Fault tolerance: training continues when processes die and when others join.
#pragma once

#include <chrono>
#include <string_view>

#include <danling/runner/torch_runner_base.hpp>

#include <runner/fault_state.hpp>

namespace danling::inline v0 {

/// After every `ft.snapshot_interval` updates each rank stores the state of the run in memory. When a process dies, the
/// others form a group without it, return to that state and continue; a joining process receives it from them.
class TorchRunnerBase::Internals::FaultTolerance {
 public:
  explicit FaultTolerance(TorchRunnerBase& runner) : runner_(runner), state_(*runner.fault_) {}

  /// Called before the first round by the processes that start the run: collective.
  void begin_training();
  /// Called on every rank after each update, where all windows are closed: collective if a snapshot is due.
  /// @throws detail::Regroup when a process waits to join
  void end_step(const StepPacket& agreed);
  /// Continues with the live processes. @param reason  the failure; empty when processes join
  /// @throws DistributedError when it cannot, and when new groups fail repeatedly although all processes live
  void regroup(std::string_view reason);
  /// Joins the processes that are already training.
  void join() { regroup(""); }

 private:
  std::chrono::milliseconds timeout() const;
  void keep_state();
  void enter_generation();
  detail::Generation next_generation();
  void connect(const detail::Generation& generation);
  void share_state();
  void restore();
  enum class Saves : char { complete, behind, missing };
  Saves saves_of_main();
  void reshard(const AxisPlace& before);

  TorchRunnerBase& runner_;
  detail::FaultState& state_;
};

}  // namespace danling::inline v0
