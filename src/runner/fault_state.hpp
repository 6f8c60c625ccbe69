// State of a fault-tolerant run between two generations of its processes.
#pragma once

#include <chrono>
#include <cstdint>

#include <danling/state/state.hpp>

#include "runner/members.hpp"

namespace danling::inline v0::detail {

/// Thrown at a step boundary, on all ranks, to let other processes in.
struct Regroup {};

/// State between two generations.
struct FaultState {
  explicit FaultState(MembersOptions options) : members(std::move(options)) {}

  Members members;
  /// The run after the last update that all ranks kept: what a checkpoint would hold. Null before, and after the group
  /// has gone back to a checkpoint.
  State point;
  std::int64_t updates = 0;                      ///< since `point`, the same on all ranks
  std::int64_t failures = 0;                     ///< since `point` was kept, in groups that lost nobody
  bool joins = false;                            ///< this process has come later, and has not joined the others yet
  bool joined = false;                           ///< it has come later
  bool prepared = false;                         ///< joining has prepared the steps of training, for this once
  std::chrono::steady_clock::time_point looked;  ///< when rank 0 last looked for processes that wait
};

}  // namespace danling::inline v0::detail
