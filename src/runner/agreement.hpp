// Agreement of the ranks at a step boundary on requests of callbacks, stops and errors.
#pragma once

#include <danling/runner/base_runner.hpp>
#include <danling/runner/parallelism.hpp>

namespace danling::inline v0 {

class BaseRunner::Agreement {
 public:
  explicit Agreement(BaseRunner& runner) : runner_(runner) {}

  /// What a rank says of itself: the weight of its accumulation window, and its place.
  struct Own {
    double weight = 0.0;
    std::int64_t unit = 0;        ///< of that weight; see StepPacket
    std::int64_t learner = -1;    ///< number of the one whose window closes
    std::int64_t micro_step = 0;  ///< of the run, when this micro-batch is done
    std::int64_t iteration = 0;   ///< of the pass, when it began
    bool ended = false;           ///< the pass: this rank joins the updates of the others
  };

  /// Collective, once for each update, between rounds, and when a pass ends.
  /// @throws DistributedError when another rank has failed
  StepPacket agree(const Own& own);
  StepPacket agree() { return agree(Own()); }
  /// Logs failed saves; then, when the ranks agreed to `stop`, throws `Stopped`. Called where a run may end.
  /// @param save the run first; false where nothing changed since the last save
  void stop_if_requested(bool save, const StepPacket& all);
  /// The same between steps; calls agree().
  void stop_if_requested(bool save) { stop_if_requested(save, agree()); }
  /// The same of this process alone.
  void stop_if_requested_here(bool save) { stop_if_requested(save, packet_of_stop()); }
  /// Whether this process is asked to stop, and by which signal.
  StepPacket packet_of_stop() const;
  /// Ends the other ranks with the words of this one's error, at their next collective: a window's end, a line of the
  /// log. Nothing in one process, and for an error that the others know.
  void report_failure(const std::exception& error);
  void report_failure(std::string_view words);
  /// Whether this is the main process of a run with `ft`, and another one waits to join. Looks five times a second.
  bool is_joined_by();
  /// Whether the time limit is reached; requests a save when its duration must be known.
  bool is_time_over();

 private:
  BaseRunner& runner_;
};

}  // namespace danling::inline v0
