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
  /// Samples in a batch of one process, or of one part; the last ones of an epoch may have fewer.
  std::int64_t batch_size = 1;
  /// Shuffles anew in every epoch. Not for streams.
  bool shuffle = false;
  /// Drops global batches of fewer than `world_size * batch_size` samples: at the end of an epoch, and where a stream
  /// stopped out of order reaches samples that were delivered.
  bool drop_last = false;
  /// Determines the order and all random transforms, with the epoch and `split`.
  std::uint64_t seed = 0;
  std::string split = {};
  /// Custom order instead of `shuffle`. Not for streams. For this loader alone: it holds the epoch.
  std::shared_ptr<Sampler> sampler = nullptr;
  /// Custom batches instead of `shuffle` and `sampler`. Not for streams. For this loader alone.
  std::shared_ptr<BatchSampler> batch_sampler = nullptr;
  /// How samples of the type `Sample` become a batch, whatever the dataset's `collate`. Datasets and streams that make
  /// whole batches, and those of other samples, refuse all but `stack`.
  Collation collation = Collation::stack;
  /// Threads that read ahead; with 0 `next()` reads in the calling thread.
  std::int64_t num_workers = 0;
  /// Batches read ahead per worker: 2 by default. Needs workers. Memory holds at most
  /// `num_workers * prefetch_factor` batches and the current one, and the samples of one batch per worker. With
  /// `shard.parts` workers read whole steps of that many batches: memory holds at least one per worker, and the
  /// current one.
  std::optional<std::int64_t> prefetch_factor = {};
  /// Keeps the threads between epochs. Needs workers.
  bool persistent_workers = false;
  /// Puts batches in page-locked memory, if there is an accelerator. The batch type needs `pin_memory`.
  bool pin_memory = false;
  /// Delivers batches in the order of the plan; else whichever is ready first, and the state records which were
  /// delivered; not with `shard.parts`. Without workers the order is always that of the plan. With several processes a
  /// global batch that is not full comes after all before it, at the same step everywhere.
  bool in_order = true;
  /// For streams: saves their state every n batches (1 by default); resume skips the samples since. No effect on
  /// datasets, whose state is a position, exact for every batch.
  std::optional<std::int64_t> snapshot_every_n_steps = {};
  /// This process's shares of each global batch.
  Shard shard = {};
};

}  // namespace danling::inline v0::data
