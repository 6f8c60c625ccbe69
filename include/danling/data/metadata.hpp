// Metadata of a sample: its index, its position in training, its origin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <danling/data/random.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Metadata of a sample. Its functions return changed copies. (Datarax: `datarax.typing.Metadata`.)
struct Metadata {
  /// Index of the record in its dataset, or its number in a stream.
  std::int64_t index = 0;
  std::int64_t epoch = 0;
  /// Number of batches that the loader delivered before this one, over all epochs.
  std::int64_t global_step = 0;
  /// Index of the batch in its epoch.
  std::optional<std::int64_t> batch_idx = {};
  /// Rank of the process that reads the sample, among those that share an epoch; with `Shard::num_shares` the share.
  std::optional<std::int64_t> shard_id = {};
  /// Key of the sample's random transforms.
  std::optional<RandomKey> rng_key = {};
  /// The record's name, if it has one: a uuid, a path, a key in a shard.
  std::optional<std::string> entry_key = {};
  /// Origin of the record, as a map; null if the dataset does not provide it.
  State source_info = {};

  /// Returns unrelated keys derived from `rng_key`, or empty ones without a key. @throws DataError when `num` is
  /// negative.
  std::vector<std::optional<RandomKey>> split_rng(std::int64_t num = 2) const;
  /// Returns a copy with the next key (the second of two that `rng_key` splits into); unchanged without a key.
  Metadata next_rng() const;
  /// Returns a copy with `global_step` increased by 1.
  Metadata increment_step() const;
  /// Returns a copy for the next epoch, at batch 0.
  Metadata increment_epoch() const;
  /// Returns a copy for the next batch; batch 0 if there was none.
  Metadata increment_batch() const;
  /// Returns a copy with another `shard_id`.
  Metadata with_shard(std::int64_t shard_id) const;
  /// Returns a copy with the fields that `other` sets: numbers other than 0, and other fields that are not empty.
  Metadata merge(const Metadata& other) const;
  /// Returns an unchanged copy if there is no other.
  Metadata merge(const std::optional<Metadata>& other) const;

  /// Returns a map with all fields, null for empty ones; the key as a pair of numbers, `entry_key` as `record_key`.
  State to_dict() const;
  /// Inverse of `to_dict`; missing fields keep their defaults, and `key` is an alias of `record_key`.
  /// @throws StateError for an unknown field or a value of another kind.
  static Metadata from_dict(const State& dict);
};

bool operator==(const Metadata& a, const Metadata& b);

}  // namespace danling::inline v0::data
