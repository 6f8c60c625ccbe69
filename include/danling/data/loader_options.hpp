// Options of a loader.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <danling/data/batch_sampler.hpp>
#include <danling/data/collation.hpp>
#include <danling/data/sampler.hpp>
#include <danling/data/shard.hpp>

namespace danling::inline v0::data {

struct LoaderOptions {
  /// Number of samples in a batch of one process, or of one part; the last batches of an epoch may be smaller.
  std::int64_t batch_size = 1;
  /// Reshuffles in every epoch. Not for streams.
  bool shuffle = false;
  /// Drops global batches of fewer than `world_size * batch_size` samples: at the end of an epoch, and before samples
  /// of a stream that were already delivered out of order.
  bool drop_last = false;
  /// Determines the order and all random transforms, together with the epoch and `split`.
  std::uint64_t seed = 0;
  std::string split = {};
  /// Custom order instead of `shuffle`. Not for streams. Not shared with other loaders, since it has an epoch.
  std::shared_ptr<Sampler> sampler = nullptr;
  /// Custom batches instead of `shuffle` and `sampler`. Not for streams. Not shared with other loaders.
  std::shared_ptr<BatchSampler> batch_sampler = nullptr;
  /// Collation of samples of the type `Sample`, instead of the dataset's `collate`. Datasets and streams of whole
  /// batches or of other samples accept only `stack`.
  Collation collation = Collation::stack;
  /// Number of threads that read ahead; with 0, `next()` reads in the calling thread.
  std::int64_t num_workers = 0;
  /// Batches read ahead per worker: 2 by default. Needs workers. Memory contains at most
  /// `num_workers * prefetch_factor` batches, the current one, and the samples of one batch per worker. With
  /// `shard.num_shares`, workers read whole steps of that many batches: at least one step per worker, and the current
  /// one.
  std::optional<std::int64_t> prefetch_factor = {};
  /// Keeps the worker threads between epochs. Needs workers.
  bool persistent_workers = false;
  /// Copies batches to page-locked memory if there is an accelerator. The batch type needs `pin_memory`.
  bool pin_memory = false;
  /// Delivers batches in planned order. If false, delivers whichever is ready first, and the state lists the delivered
  /// ones; not with `shard.num_shares`. Without workers the order is always as planned. With several processes, an
  /// incomplete global batch is delivered after all earlier ones, at the same step on all ranks.
  bool in_order = true;
  /// For streams: saves their state every n batches (1 by default); resuming skips the samples read since. No effect on
  /// datasets, whose state is an exact position.
  std::optional<std::int64_t> snapshot_every_n_steps = {};
  /// This process's shares of each global batch.
  Shard shard = {};
};

}  // namespace danling::inline v0::data
