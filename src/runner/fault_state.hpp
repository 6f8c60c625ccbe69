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
  /// The run after the last update that all ranks kept: what a checkpoint would hold. Null before.
  State point;
  std::int64_t updates = 0;                      ///< since then
  bool joins = false;                            ///< the others, when training begins
  std::chrono::steady_clock::time_point looked;  ///< for processes that wait
};

}  // namespace danling::inline v0::detail
