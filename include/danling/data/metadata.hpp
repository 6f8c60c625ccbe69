// Metadata of a sample: its index, its place in training, its origin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <danling/data/random.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Metadata of a sample. A value: the functions return changed copies. (Datarax: `datarax.typing.Metadata`.)
struct Metadata {
  /// Index of the record in its dataset, or its number in a stream.
  std::int64_t index = 0;
  std::int64_t epoch = 0;
  /// Batches that the loader delivered before this one, over all epochs.
  std::int64_t global_step = 0;
  /// Position of the batch in its epoch.
  std::optional<std::int64_t> batch_idx = {};
  /// Rank of the process that reads the sample, among those that share an epoch; with `Shard::parts` the share.
  std::optional<std::int64_t> shard_id = {};
  /// Key of the sample's random transforms.
  std::optional<RandomKey> rng_key = {};
  /// The record's name, if it has one: a uuid, a path, a key in a shard.
  std::optional<std::string> entry_key = {};
  /// Origin of the record, as a map; null if the dataset does not provide it.
  State source_info = {};

  /// Unrelated keys made from `rng_key`; all empty when there is none. @throws DataError when `num` is negative.
  std::vector<std::optional<RandomKey>> split_rng(std::int64_t num = 2) const;
  /// With the next key (the second of two that `rng_key` splits into); unchanged without a key.
  Metadata next_rng() const;
  Metadata increment_step() const;
  /// The next epoch, at batch 0.
  Metadata increment_epoch() const;
  /// The next batch; 0 when there was none.
  Metadata increment_batch() const;
  Metadata with_shard(std::int64_t shard_id) const;
  /// With the fields set in `other`: its numbers that are not 0, and its other fields that are not empty.
  Metadata merge(const Metadata& other) const;
  /// Unchanged if there is no other.
  Metadata merge(const std::optional<Metadata>& other) const;

  /// A map with all fields, null for empty ones; the key as a pair of numbers, `entry_key` as `record_key`.
  State to_dict() const;
  /// Inverse of `to_dict`; missing fields keep their default, and `key` is an alias of `record_key`.
  /// @throws StateError for an unknown field or another kind of value.
  static Metadata from_dict(const State& dict);
};

bool operator==(const Metadata& a, const Metadata& b);

}  // namespace danling::inline v0::data
