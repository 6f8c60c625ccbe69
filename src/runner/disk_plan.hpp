// Disk plan: the space for the checkpoints of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <danling/state/state.hpp>

namespace danling::inline v0::detail {

/// Rules for saving and keeping checkpoints; in epochs or steps.
struct SaveRules {
  std::int64_t done = 0;
  std::int64_t boundary = 0;
  std::int64_t interval = 1;
  std::int64_t keep_latest_k = 0;
  std::int64_t keep_best_k = 0;
  bool keeps_by_hours = false;
};

/// Largest number of full states that future saves leave on disk: the history, and `latest`, `previous` and `best`
/// unless they are links to it. With `keep_every_hours` there may be more.
std::int64_t states_kept(const SaveRules& rules);

/// Bytes of all tensors in a state.
std::uint64_t bytes_of(const State& state);

/// Bytes of an optimizer's state in the layout of torch.optim for `parameters` bytes of parameters; an estimate before
/// the first update (Adam: two moments). Empty for an unknown kind.
std::optional<std::uint64_t> optimizer_bytes(const State& state, std::uint64_t parameters);

}  // namespace danling::inline v0::detail
