// Agreement of the ranks at a step boundary on requests of callbacks, stops and errors.
#pragma once

#include <danling/runner/base_runner.hpp>
#include <danling/runner/parallelism.hpp>

namespace danling::inline v0 {

class BaseRunner::Internals::Agreement {
 public:
  explicit Agreement(BaseRunner& runner) : runner_(runner) {}

  /// A rank's contribution to the packet: the weight of its accumulation window, and its position.
  struct Own {
    double weight = 0.0;
    std::int64_t unit = 0;        ///< of that weight; see StepPacket
    std::int64_t learner = -1;    ///< number of the learner whose window closes
    std::int64_t micro_step = 0;  ///< of the run, after this micro-batch
    std::int64_t iteration = 0;   ///< of the pass, at the start of this micro-batch
    bool ended = false;           ///< the pass of this rank has ended: it joins the updates of the others
  };

  /// Collective, once for each update, between rounds, and when a pass ends.
  /// @throws DistributedError when another rank has failed
  StepPacket agree(const Own& own);
  StepPacket agree() { return agree(Own()); }
  /// Logs failed saves; then, if the ranks agreed to `stop`, throws `Stopped`. Called where a run may end.
  /// @param save  save the run first; false if nothing changed since the last save
  void stop_if_requested(bool save, const StepPacket& all);
  /// stop_if_requested() between steps; calls agree().
  void stop_if_requested(bool save) { stop_if_requested(save, agree()); }
  /// stop_if_requested() for this process alone.
  void stop_if_requested_here(bool save) { stop_if_requested(save, packet_of_stop()); }
  /// The stop request of this process, with its signal.
  StepPacket packet_of_stop() const;
  /// Ends the other ranks with the message of this rank's error, at their next collective: a window's end or a log
  /// line. Does nothing in one process, and for an error that the others know.
  void report_failure(const std::exception& error);
  void report_failure(std::string_view words);
  /// True on the main process of a run with `ft` if another process waits to join. Checks five times a second.
  bool is_joined_by();
  /// True when the time limit is reached; requests a save if none was measured.
  bool is_time_over();

 private:
  BaseRunner& runner_;
};

}  // namespace danling::inline v0
