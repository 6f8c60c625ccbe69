// What a batch is: which records, in which epoch, at which place. Random transforms and metadata depend on it only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <danling/data/metadata.hpp>
#include <danling/data/random.hpp>

namespace danling::inline v0::data {

/// Made by the loader for each batch, given to whoever reads it, and kept in the batch where its type has a member
/// `info` of this type. It does not depend on threads; on ranks only where it says so.
struct BatchInfo {
  /// The records of the batch in its order, by their numbers in the loader's dataset; in a stream, by their order.
  std::vector<std::int64_t> indices = {};
  std::string split = {};
  std::int64_t epoch = 0;
  /// Of the batch in its epoch, on this rank.
  std::int64_t batch_idx = 0;
  /// Batches that the loader delivered before this one, over all epochs.
  std::int64_t global_step = 0;
  /// Where the first sample stands in the order of the epoch, which all ranks share.
  std::int64_t position = 0;
  /// Of this process.
  std::int64_t shard_id = 0;
  /// How many samples at the end repeat others, so that all ranks have batches of one size.
  std::int64_t num_padding = 0;
  /// Samples in the batches of all ranks at this step, without padding.
  std::int64_t global_size = 0;
  /// Of (seed, split, epoch): with its number folded in, the key of a record.
  RandomKey epoch_key = {};
  /// Of (seed, split, epoch, position): for what mixes the samples of a batch.
  RandomKey batch_key = {};
  /// Where a sampler repeats records, a key for each sample that depends on its position too; else empty.
  std::vector<RandomKey> sample_keys = {};
  /// By sample, the names that samples gave themselves (`uuid`), put here by the dataset; empty where they have none.
  std::vector<std::optional<std::string>> entry_keys = {};

  /// For reading without a loader: of these records, in epoch 0 without a seed.
  static BatchInfo of(std::span<const std::int64_t> indices);

  std::size_t size() const { return indices.size(); }
  /// The key of sample `i` in [0, size()).
  RandomKey key(std::size_t i) const {
    return sample_keys.empty() ? epoch_key.fold_in(static_cast<std::uint64_t>(indices[i])) : sample_keys[i];
  }
  /// What the random transforms of sample `i` draw from.
  Random random(std::size_t i) const { return Random(key(i)); }
  /// What transforms that mix samples draw from.
  Random batch_random() const { return Random(batch_key); }
  /// Of sample `i`; without what datasets know (`source_info`, names of records): see `Loader::metadata`.
  Metadata metadata(std::size_t i) const;
  /// The same batch with some of its samples only.
  BatchInfo select(std::span<const std::size_t> samples) const;
  /// The same batch with keys of its own for each layer of functions that draw from them; those of layer 0 are these.
  BatchInfo at_layer(std::int64_t layer) const;
};

namespace detail {
/// What the keys of layer 1 and above are folded with: numbers of records and places in `compose` are others.
inline std::uint64_t layer_constant(std::int64_t layer) {
  return (std::uint64_t{3} << 62) | static_cast<std::uint64_t>(layer);
}
}  // namespace detail

/// What one sample is, while it is read: sample `i` of `batch`.
class SampleInfo {
 public:
  SampleInfo(const BatchInfo& batch, std::size_t i) : batch_(&batch), i_(i) {}

  const BatchInfo& batch() const { return *batch_; }
  /// Its number in the loader's dataset, which a subset of it numbers otherwise.
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
  /// What its random transforms draw from: the same in every layout of workers, batches and processes.
  Random random() const { return Random(key()); }
  Metadata metadata() const {
    Metadata out = batch_->metadata(i_);
    out.rng_key = key();
    return out;
  }
  /// The sample as a batch of one.
  BatchInfo alone() const { return batch_->select({&i_, 1}); }
  /// The same sample with the keys that `BatchInfo::at_layer` gives.
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
