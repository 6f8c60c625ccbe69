// Agreement of the ranks at a step boundary on requests of callbacks, stops and errors.
#pragma once

#include <danling/runner/base_runner.hpp>
#include <danling/runner/parallelism.hpp>

namespace danling::inline v0 {

class BaseRunner::Agreement {
 public:
  explicit Agreement(BaseRunner& runner) : runner_(runner) {}

  /// Collective, once for each update and between rounds. `weight`: of this rank's accumulation window.
  /// @throws DistributedError when another rank has failed or ended its pass
  StepPacket agree(double weight = 0.0);
  /// Logs failed saves; then, when the ranks agreed to `stop`, throws `Stopped`. Called where a run may end.
  /// @param save the run first; false where nothing changed since the last save
  void stop_if_requested(bool save, bool stop);
  /// The same between steps; calls agree().
  void stop_if_requested(bool save) { stop_if_requested(save, agree().stop); }
  /// Whether the time limit is reached; requests a save when its duration must be known.
  bool is_time_over();
  [[noreturn]] static void fail_with_others();

 private:
  BaseRunner& runner_;
};

}  // namespace danling::inline v0
