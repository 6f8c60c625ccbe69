// Datasets: a known number of records, read by index in batches.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <danling/data/batch_info.hpp>
#include <danling/data/datum.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Records 0 to size()-1, read as batches of type `B`. Loaders with workers call it from several threads at a time.
template <class B>
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Returns the number of records; constant while a loader uses the dataset.
  virtual std::int64_t size() const = 0;

  /// Returns the batch of these records, in this order. Called once per batch; indices may repeat.
  virtual B get_batch(std::span<const std::int64_t> indices) = 0;

  /// The same with keys for random transforms; loaders call this. `info.indices` are indices in the loader's dataset,
  /// `indices` those in this dataset. Override it if the batch depends on `info`, or to pass `info` on to another
  /// dataset.
  virtual B read(std::span<const std::int64_t> indices, const BatchInfo& info) {
    detail::check_stacked(info.collation, "a dataset that makes whole batches");
    return get_batch(indices);
  }

  /// Returns the origin of a record, for metadata and messages; null if unknown.
  virtual State source_info(std::int64_t index) const {
    (void)index;
    return {};
  }

  /// Returns the record's name (a path, a key) if known without reading the record.
  virtual std::optional<std::string> entry_key(std::int64_t index) const {
    (void)index;
    return std::nullopt;
  }

  /// Returns the number of nested functions that draw random numbers from the keys of `info` in this dataset; functions
  /// above use other keys (`BatchInfo::at_layer`). Override it if `read` draws from them, or passes `info` on.
  virtual std::int64_t random_layers() const { return 0; }

  /// Returns the loader defaults that the sample type declares.
  virtual LoaderDefaults loader_defaults() const { return {}; }

  /// Returns the split of the data ("train"), or an empty string if unknown.
  virtual std::string split() const { return {}; }

  /// Returns true for training data, which runners shuffle by default.
  virtual bool train() const { return split() == "train"; }
};

}  // namespace danling::inline v0::data
