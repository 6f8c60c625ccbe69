// Identity of a batch: record indices, epoch and position, from which random transforms and metadata follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <danling/data/collation.hpp>
#include <danling/data/metadata.hpp>
#include <danling/data/random.hpp>

namespace danling::inline v0::data {

/// Created by the loader for each batch, passed to the dataset or stream that reads it, and stored in the batch's
/// member `info` if its type has one. Independent of threads; depends on the rank only where stated.
struct BatchInfo {
  /// Record indices in the loader's dataset, in batch order; for a stream, numbers in stream order.
  std::vector<std::int64_t> indices = {};
  std::string split = {};
  std::int64_t epoch = 0;
  /// Index of the batch in its epoch, on this rank.
  std::int64_t batch_idx = 0;
  /// Number of batches that the loader delivered before this one, over all epochs.
  std::int64_t global_step = 0;
  /// Position of the first sample in the epoch's order, which all ranks share.
  std::int64_t position = 0;
  /// Share of the global batch: the rank of this process; with `Shard::num_shares`, plus the part.
  std::int64_t shard_id = 0;
  /// Number of samples at the end that repeat others, so that the batches of all ranks have equal sizes.
  std::int64_t num_padding = 0;
  /// Number of samples on all ranks at this step, without padding.
  std::int64_t global_size = 0;
  /// Key of (seed, split, epoch); `fold_in` of a record's index returns the record's key.
  RandomKey epoch_key = {};
  /// Key of (seed, split, epoch, position), for transforms that mix samples of a batch.
  RandomKey batch_key = {};
  /// If a sampler repeats records: one key per sample, which also depends on its position. Otherwise empty.
  std::vector<RandomKey> sample_keys = {};
  /// Collation that the loader's options request.
  Collation collation = Collation::stack;
  /// Permanent names of the samples (`uuid`), set by the dataset; empty for samples without one.
  std::vector<std::optional<std::string>> entry_keys = {};

  /// For reading without a loader: these records, in epoch 0, without a seed.
  static BatchInfo of(std::span<const std::int64_t> indices);

  std::size_t size() const { return indices.size(); }
  /// Returns the key of sample `i` in [0, size()).
  RandomKey key(std::size_t i) const {
    return sample_keys.empty() ? epoch_key.fold_in(static_cast<std::uint64_t>(indices[i])) : sample_keys[i];
  }
  /// Returns random numbers for the transforms of sample `i`.
  Random random(std::size_t i) const { return Random(key(i)); }
  /// Returns random numbers for transforms that mix samples.
  Random batch_random() const { return Random(batch_key); }
  /// Returns metadata of sample `i`, without the dataset's part (`source_info`, record names): see `Loader::metadata`.
  Metadata metadata(std::size_t i) const;
  /// Returns the info of some samples of this batch.
  BatchInfo select(std::span<const std::size_t> samples) const;
  /// Returns the same info with unrelated keys for each layer of nested random functions; layer 0 keeps the keys.
  BatchInfo at_layer(std::int64_t layer) const;
};

namespace detail {
[[noreturn]] void refuse_collation(Collation collation, std::string_view source);
/// Throws unless `collation` is `stack`; `source` describes what makes the batches. @throws ConfigError
inline void check_stacked(Collation collation, std::string_view source) {
  if (collation != Collation::stack) [[unlikely]] {
    refuse_collation(collation, source);
  }
}
/// Constant that is folded into the keys of layer 1 and above; differs from record indices and places in `compose`.
inline std::uint64_t layer_constant(std::int64_t layer) {
  return (std::uint64_t{3} << 62) | static_cast<std::uint64_t>(layer);
}
}  // namespace detail

/// Identity of one sample while it is read: sample `i` of `batch`.
class SampleInfo {
 public:
  SampleInfo(const BatchInfo& batch, std::size_t i) : batch_(&batch), i_(i) {}

  const BatchInfo& batch() const { return *batch_; }
  /// Record index in the loader's dataset; a subset renumbers its records.
  std::int64_t index() const { return batch_->indices[i_]; }
  RandomKey key() const {
    if (layer_ == 0) {
      return batch_->key(i_);
    }
    const std::uint64_t constant = detail::layer_constant(layer_);
    return batch_->sample_keys.empty()
               ? batch_->epoch_key.fold_in(constant).fold_in(static_cast<std::uint64_t>(index()))
               : batch_->sample_keys[i_].fold_in(constant);
  }
  /// Returns random numbers for transforms; they do not depend on workers, batches or processes.
  Random random() const { return Random(key()); }
  Metadata metadata() const {
    Metadata out = batch_->metadata(i_);
    out.rng_key = key();
    return out;
  }
  /// Returns the info of a batch of only this sample.
  BatchInfo alone() const { return batch_->select({&i_, 1}); }
  /// Returns the same sample with the keys of `BatchInfo::at_layer`.
  SampleInfo at_layer(std::int64_t layer) const {
    SampleInfo out = *this;
    out.layer_ = layer;
    return out;
  }

 private:
  const BatchInfo* batch_;
  std::size_t i_;
  std::int64_t layer_ = 0;
};

}  // namespace danling::inline v0::data
