// Identity of a batch: records, epoch and position. Random transforms and metadata depend on it only.
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
/// member `info` if its type has one. Does not depend on threads; depends on the rank only where stated.
struct BatchInfo {
  /// The records of the batch in its order, by their numbers in the loader's dataset; in a stream, by their order.
  std::vector<std::int64_t> indices = {};
  std::string split = {};
  std::int64_t epoch = 0;
  /// Position of the batch in its epoch, on this rank.
  std::int64_t batch_idx = 0;
  /// Batches that the loader delivered before this one, over all epochs.
  std::int64_t global_step = 0;
  /// Position of the first sample in the order of the epoch, which all ranks share.
  std::int64_t position = 0;
  /// Share of the global batch: the rank of this process, plus the part with `Shard::parts`.
  std::int64_t shard_id = 0;
  /// Number of samples at the end that repeat others, so that all ranks have batches of one size.
  std::int64_t num_padding = 0;
  /// Samples in the batches of all ranks at this step, without padding.
  std::int64_t global_size = 0;
  /// Key of (seed, split, epoch); `fold_in` of a record's number returns the record's key.
  RandomKey epoch_key = {};
  /// Key of (seed, split, epoch, position), for transforms that mix the samples of a batch.
  RandomKey batch_key = {};
  /// One key per sample, which also depends on its position, if a sampler repeats records; else empty.
  std::vector<RandomKey> sample_keys = {};
  /// How the loader's options want samples collated.
  Collation collation = Collation::stack;
  /// The samples' own names (`uuid`), set by the dataset; empty for samples without one.
  std::vector<std::optional<std::string>> entry_keys = {};

  /// For reading without a loader: these records, in epoch 0 without a seed.
  static BatchInfo of(std::span<const std::int64_t> indices);

  std::size_t size() const { return indices.size(); }
  /// The key of sample `i` in [0, size()).
  RandomKey key(std::size_t i) const {
    return sample_keys.empty() ? epoch_key.fold_in(static_cast<std::uint64_t>(indices[i])) : sample_keys[i];
  }
  /// Random numbers of sample `i`, for its transforms.
  Random random(std::size_t i) const { return Random(key(i)); }
  /// Random numbers for transforms that mix samples.
  Random batch_random() const { return Random(batch_key); }
  /// Metadata of sample `i`, without the dataset's part (`source_info`, names of records): see `Loader::metadata`.
  Metadata metadata(std::size_t i) const;
  /// The same batch, restricted to `samples`.
  BatchInfo select(std::span<const std::size_t> samples) const;
  /// The same batch with unrelated keys for each layer of random functions; layer 0 keeps these keys.
  BatchInfo at_layer(std::int64_t layer) const;
};

namespace detail {
[[noreturn]] void refuse_collation(Collation collation, std::string_view source);
/// Fails for all but `stack`; `source` makes the batches. @throws ConfigError
inline void check_stacked(Collation collation, std::string_view source) {
  if (collation != Collation::stack) [[unlikely]] {
    refuse_collation(collation, source);
  }
}
/// The constant folded into the keys of layer 1 and above; differs from numbers of records and places in `compose`.
inline std::uint64_t layer_constant(std::int64_t layer) {
  return (std::uint64_t{3} << 62) | static_cast<std::uint64_t>(layer);
}
}  // namespace detail

/// Identity of one sample while it is read: sample `i` of `batch`.
class SampleInfo {
 public:
  SampleInfo(const BatchInfo& batch, std::size_t i) : batch_(&batch), i_(i) {}

  const BatchInfo& batch() const { return *batch_; }
  /// Index of the record in the loader's dataset; a subset numbers its records otherwise.
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
  /// Random numbers for its transforms: the same for every layout of workers, batches and processes.
  Random random() const { return Random(key()); }
  Metadata metadata() const {
    Metadata out = batch_->metadata(i_);
    out.rng_key = key();
    return out;
  }
  /// The sample as a batch of one.
  BatchInfo alone() const { return batch_->select({&i_, 1}); }
  /// The same sample with the keys of `BatchInfo::at_layer`.
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
