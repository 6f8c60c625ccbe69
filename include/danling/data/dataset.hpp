// Datasets: a known number of records, read by index in whole batches.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <danling/data/batch_info.hpp>
#include <danling/data/datum.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Records 0 .. size()-1, read as batches of type `B`. Loaders with workers read from several threads at a time.
template <class B>
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Number of records; constant while a loader uses the dataset.
  virtual std::int64_t size() const = 0;

  /// The batch of these records, in this order. Called once per batch; indices may repeat.
  virtual B get_batch(std::span<const std::int64_t> indices) = 0;

  /// The same with what random transforms depend on; this is what loaders call. `info` tells the samples of the batch
  /// as the loader numbers them, `indices` as this dataset does. Override it where the batch depends on `info`, or to
  /// pass `info` on to another dataset.
  virtual B read(std::span<const std::int64_t> indices, const BatchInfo& info) {
    (void)info;
    return get_batch(indices);
  }

  /// Where a record came from, for metadata and messages; null where the dataset does not know.
  virtual State source_info(std::int64_t index) const {
    (void)index;
    return {};
  }

  /// The record's own name (a path, a key), where the dataset knows it without reading the record.
  virtual std::optional<std::string> entry_key(std::int64_t index) const {
    (void)index;
    return std::nullopt;
  }

  /// How many functions, one above another, draw random numbers from the keys of `info` here: what stands above draws
  /// from other keys (`BatchInfo::at_layer`). Override it where `read` draws from them, or passes `info` on.
  virtual std::int64_t random_layers() const { return 0; }

  /// What the sample type declares for loaders.
  virtual LoaderDefaults loader_defaults() const { return {}; }

  /// What part of the data this is ("train"), or empty where the dataset does not know.
  virtual std::string split() const { return {}; }

  /// Whether this is training data, which runners shuffle by default.
  virtual bool train() const { return split() == "train"; }
};

}  // namespace danling::inline v0::data
