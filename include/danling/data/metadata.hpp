// What is known of a sample besides its content: which one it is, when it is seen, where it came from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <danling/data/random.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Travels beside a sample. A value: the functions give changed copies. (Datarax: `datarax.typing.Metadata`.)
struct Metadata {
  /// Of the record in its dataset, or its number in a stream.
  std::int64_t index = 0;
  std::int64_t epoch = 0;
  /// Batches that the loader delivered before this one, over all epochs.
  std::int64_t global_step = 0;
  /// Of the batch in its epoch.
  std::optional<std::int64_t> batch_idx = {};
  /// Which of the processes that share an epoch sees the sample: its rank.
  std::optional<std::int64_t> shard_id = {};
  /// What the sample's random transforms draw from.
  std::optional<RandomKey> rng_key = {};
  /// The record's own name, where it has one: a uuid, a path, a key in a shard.
  std::optional<std::string> entry_key = {};
  /// Where the record came from, as a map; null where the dataset does not say.
  State source_info = {};

  /// Unrelated keys made from `rng_key`; all empty when there is none. @throws DataError when `num` is negative.
  std::vector<std::optional<RandomKey>> split_rng(std::int64_t num = 2) const;
  /// With the next key (the second of two that `rng_key` splits into), or as it is when there is none.
  Metadata next_rng() const;
  Metadata increment_step() const;
  /// The next epoch, at batch 0.
  Metadata increment_epoch() const;
  /// The next batch; 0 when there was none.
  Metadata increment_batch() const;
  Metadata with_shard(std::int64_t shard_id) const;
  /// With what `other` knows: its numbers that are not 0, and its other fields that are there.
  Metadata merge(const Metadata& other) const;
  /// As it is, where there is no other.
  Metadata merge(const std::optional<Metadata>& other) const;

  /// A map with all fields, null where there is none; the key as a pair of numbers, `entry_key` as `record_key`.
  State to_dict() const;
  /// The opposite; fields that are missing keep their default, and `key` stands for `record_key` too.
  /// @throws StateError for a name that is not a field's, or another kind of value.
  static Metadata from_dict(const State& dict);
};

bool operator==(const Metadata& a, const Metadata& b);

}  // namespace danling::inline v0::data
