// What a loader can be told.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <danling/data/batch_sampler.hpp>
#include <danling/data/sampler.hpp>
#include <danling/data/shard.hpp>

namespace danling::inline v0::data {

struct LoaderOptions {
  /// Samples in a batch of one process; the last ones of an epoch may have fewer.
  std::int64_t batch_size = 1;
  /// A new order in every epoch. Not for streams.
  bool shuffle = false;
  /// Leaves out global batches that have fewer than `world_size * batch_size` samples: at the end of an epoch, and
  /// where a stream that was stopped out of order comes to samples that were delivered.
  bool drop_last = false;
  /// With the epoch and `split`, what the order and all random transforms depend on.
  std::uint64_t seed = 0;
  std::string split = {};
  /// An order of one's own instead of `shuffle`. Not for streams. For this loader alone: it holds the epoch.
  std::shared_ptr<Sampler> sampler = nullptr;
  /// Batches of one's own instead of `shuffle` and `sampler`. Not for streams. For this loader alone.
  std::shared_ptr<BatchSampler> batch_sampler = nullptr;
  /// Threads that read ahead; with 0 `next()` reads in the calling thread.
  std::int64_t num_workers = 0;
  /// Batches that are read ahead for each worker: 2 by default. Needs workers. In memory are at most
  /// `num_workers * prefetch_factor` batches and the current one, and the samples of one batch for each worker.
  std::optional<std::int64_t> prefetch_factor = {};
  /// Keeps the threads from one epoch to the next, instead of ending and starting them. Needs workers.
  bool persistent_workers = false;
  /// Puts batches in page-locked memory, where there is an accelerator. The batch type needs `pin_memory`.
  bool pin_memory = false;
  /// Batches come in the order of the plan; else whichever is ready first, and the state holds which came. Without
  /// workers they are read one after another, so they come in order either way. With several processes a global batch
  /// that is not full comes after all before it, at the same step everywhere.
  bool in_order = true;
  /// For streams: their state is taken behind every n-th batch (1 by default), and a resume passes over the samples
  /// since. The state of a dataset is a position, which is exact for every batch: there it changes nothing.
  std::optional<std::int64_t> snapshot_every_n_steps = {};
  /// Which part of each global batch is read here.
  Shard shard = {};
};

}  // namespace danling::inline v0::data
