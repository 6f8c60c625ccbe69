// State of a fault-tolerant run between two generations of its processes.
#pragma once

#include <chrono>
#include <cstdint>

#include <danling/state/state.hpp>

#include <runner/members.hpp>

namespace danling::inline v0::detail {

/// Thrown at a step boundary, on all ranks, to admit other processes.
struct Regroup {};

/// State between two generations.
struct FaultState {
  explicit FaultState(MembersOptions options) : members(std::move(options)) {}

  Members members;
  /// State of the run after the last update that all ranks stored, as in a checkpoint. Null before the first, and after
  /// the group has returned to a checkpoint.
  State point;
  std::int64_t updates = 0;                      ///< since `point`, the same on all ranks
  std::int64_t failures = 0;                     ///< since `point` was stored, of groups that lost no process
  bool joins = false;                            ///< this process started late and has not joined the others yet
  bool joined = false;                           ///< this process started late
  bool prepared = false;                         ///< joining has prepared the training steps; valid once
  std::chrono::steady_clock::time_point looked;  ///< last time that rank 0 checked for waiting processes
};

}  // namespace danling::inline v0::detail
