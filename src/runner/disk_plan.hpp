// How much disk the checkpoints of a run take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <danling/state/state.hpp>

namespace danling::inline v0::detail {

/// When a run saves, and what it keeps; epochs or steps.
struct SaveRules {
  std::int64_t done = 0;
  std::int64_t boundary = 0;
  std::int64_t interval = 1;
  std::int64_t keep_latest_k = 0;
  std::int64_t keep_best_k = 0;
  bool keeps_by_hours = false;
};

/// Whole states that the saves from now on leave on disk at most: the history, and `latest`, `previous` and `best`
/// where they are no further names of it. With `keep_every_hours` there may be more.
std::int64_t states_kept(const SaveRules& rules);

/// Of all tensors in it.
std::uint64_t bytes_of(const State& state);

/// What an optimizer in the layout of torch.optim keeps for so many bytes of parameters: what it holds, or before the
/// first update what it will hold (Adam: two moments). Nothing where its kind is not known.
std::optional<std::uint64_t> optimizer_bytes(const State& state, std::uint64_t parameters);

/// `45.2 MiB`.
std::string format_bytes(std::uint64_t bytes);

}  // namespace danling::inline v0::detail
