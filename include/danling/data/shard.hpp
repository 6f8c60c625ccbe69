// One process's shares of every global batch.
#pragma once

#include <cstdint>

namespace danling::inline v0::data {

/// All processes share one order. A global batch is the next `world_size * batch_size` samples of it, and rank r takes
/// the r-th block; all ranks step together, so they share one position. With `num_shares`, a process takes several
/// consecutive blocks, each as a separate batch: the batches are the same for any number of processes.
struct Shard {
  /// The first share of this process.
  std::int64_t rank = 0;
  /// Number of shares in a global batch: the number of processes, unless some have several parts.
  std::int64_t world_size = 1;
  /// Pads the last global batch so that all ranks have equal numbers of samples: repeats samples, which
  /// `BatchInfo::num_padding` counts. Otherwise ranks divide the last samples as evenly as possible, and some may have
  /// none. Not for streams.
  bool padding = false;
  /// Number of consecutive shares of this process, starting at `rank`. The loader delivers them one after another; see
  /// `LoaderBase::share_index`.
  std::int64_t num_shares = 1;
};

}  // namespace danling::inline v0::data
