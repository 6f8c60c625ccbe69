// One process's part of every global batch.
#pragma once

#include <cstdint>

namespace danling::inline v0::data {

/// Processes share one order: a global batch is the next `world_size * batch_size` samples of it, and rank r takes the
/// r-th block. All ranks step together, so they share one position in the order.
struct Shard {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  /// Pads the last global batch to equal numbers on all ranks: samples are repeated, and `BatchInfo::num_padding`
  /// counts them. Otherwise ranks share the last samples as evenly as can be, and some may have none. Not for streams.
  bool padding = false;
};

}  // namespace danling::inline v0::data
