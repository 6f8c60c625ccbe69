// One process's shares of every global batch.
#pragma once

#include <cstdint>

namespace danling::inline v0::data {

/// Processes share one order: a global batch is the next `world_size * batch_size` samples of it, and rank r takes the
/// r-th block. All ranks step together, so they share one position in the order. With `parts` a process takes several
/// neighbouring blocks, each as a batch of its own: the same batches come for any number of processes.
struct Shard {
  /// The process's first share.
  std::int64_t rank = 0;
  /// Shares of a global batch: the number of processes, unless some have several parts.
  std::int64_t world_size = 1;
  /// Pads the last global batch to equal numbers on all ranks: samples are repeated, and `BatchInfo::num_padding`
  /// counts them. Otherwise ranks share the last samples as evenly as can be, and some may have none. Not for streams.
  bool padding = false;
  /// Neighbouring shares of this process, from `rank` on. The loader delivers them one after another; see
  /// `LoaderBase::part`.
  std::int64_t parts = 1;
};

}  // namespace danling::inline v0::data
