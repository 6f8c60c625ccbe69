// Which part of every global batch a process takes.
#pragma once

#include <cstdint>

namespace danling::inline v0::data {

/// Processes share one order: a global batch is the next `world_size * batch_size` samples of it, and rank r takes the
/// r-th block. All ranks step together, so a position in the order holds for all of them.
struct Shard {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  /// Gives all ranks as many samples in the last global batch too: samples are repeated, and `BatchInfo::num_padding`
  /// says how many. Otherwise ranks share the last samples as evenly as can be, and some may have none. Not for
  /// streams.
  bool padding = false;
};

}  // namespace danling::inline v0::data
