// Datasets: a known number of records, read by index in whole batches.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <danling/data/batch.hpp>
#include <danling/data/batch_info.hpp>
#include <danling/data/batch_traits.hpp>
#include <danling/data/datum.hpp>
#include <danling/data/sample.hpp>

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

  /// What the sample type declares for loaders.
  virtual LoaderDefaults loader_defaults() const { return {}; }

  /// What part of the data this is ("train"), or empty where the dataset does not know.
  virtual std::string split() const { return {}; }

  /// Whether this is training data, which runners shuffle by default.
  virtual bool train() const { return split() == "train"; }
};

namespace detail {
template <class T>
concept PlainBatches = requires(T& object, std::span<const std::int64_t> indices) {
  { object.get_batch(indices) } -> BatchType;
};
template <class T>
concept InformedBatches = requires(T& object, std::span<const std::int64_t> indices, const BatchInfo& info) {
  { object.get_batch(indices, info) } -> BatchType;
};
template <class T>
concept PlainSamples = requires(T& object, std::int64_t index) {
  object.get(index);
};
template <class T>
concept InformedSamples = requires(T& object, std::int64_t index, const SampleInfo& info) {
  object.get(index, info);
};

template <class T>
auto get_sample(T& object, std::int64_t index, const SampleInfo& info) {
  if constexpr (InformedSamples<T>) {
    return object.get(index, info);
  } else {
    return object.get(index);
  }
}
template <class T>
using sample_of =
    std::remove_cvref_t<decltype(get_sample(std::declval<T&>(), std::int64_t{}, std::declval<const SampleInfo&>()))>;

/// Throws what is being handled on, as a DataError that names record `index` of the loader's dataset, with the original
/// nested in it.
[[noreturn]] void rethrow_for_record(const SampleInfo& info, std::int64_t index);
/// The same for a CollateError of the sample `info`.
[[noreturn]] void rethrow_for_sample(const CollateError& error, const SampleInfo& info, std::int64_t index,
                                     const std::optional<std::string>& uuid);
}  // namespace detail

/// `size()` and `get_batch(indices)` or `get_batch(indices, info)`.
template <class T>
concept BatchSource = (detail::PlainBatches<T> || detail::InformedBatches<T>)&&requires(const T& constant) {
  { constant.size() } -> std::convertible_to<std::int64_t>;
};

/// `size()`, `get(index)` or `get(index, info)`, and a `collate` for what `get` returns, in the type or beside the
/// sample's type.
template <class T>
concept SampleSource = (detail::PlainSamples<T> || detail::InformedSamples<T>)&&requires(const T& constant) {
  { constant.size() } -> std::convertible_to<std::int64_t>;
  requires Collates<T, detail::sample_of<T>>;
};

/// What `make_dataset` takes. (t3w: IDataset.)
template <class T>
concept DatasetLike = BatchSource<T> || SampleSource<T>;

namespace detail {
template <class T>
concept NamesDatum = requires {
  typename T::datum_type;
};
/// The type whose declarations hold for a dataset: what it names, else what `get` returns.
template <class T>
struct DatumOf {
  using type = void;
};
template <SampleSource T>
requires(!NamesDatum<T>) struct DatumOf<T> {
  using type = sample_of<T>;
};
template <NamesDatum T>
struct DatumOf<T> {
  using type = typename T::datum_type;
};
/// A dataset that names its datum and gives samples gives such samples.
template <class T>
concept DatumFits = !NamesDatum<T> || !SampleSource<T> || std::same_as<typename DatumOf<T>::type, sample_of<T>>;

template <class B>
concept KeepsInfo = requires(B& batch) {
  { (batch.info) } -> std::same_as<BatchInfo&>;
};

/// The samples as a batch. Their uuids go into the batch's `info` where it has one, and into what collating throws.
template <class T, class S>
auto collate_records(T& object, std::vector<S> samples, std::span<const std::int64_t> indices, const BatchInfo& info) {
  std::vector<std::optional<std::string>> uuids;
  if constexpr (HasUuid<S>) {
    uuids.reserve(samples.size());
    for (const S& sample : samples) {
      uuids.push_back(uuid_of(sample));
    }
  }
  try {
    auto batch = collate_with(object, std::move(samples));
    if constexpr (HasUuid<S> && KeepsInfo<decltype(batch)>) {
      batch.info.entry_keys = std::move(uuids);
    }
    return batch;
  } catch (const CollateError& error) {
    const std::size_t i = error.sample();
    if (i >= indices.size()) {
      throw;
    }
    rethrow_for_sample(error, SampleInfo(info, i), indices[i], uuids.empty() ? std::nullopt : uuids[i]);
  }
}

template <class T>
auto read_batch(T& object, std::span<const std::int64_t> indices, const BatchInfo& info) {
  if constexpr (InformedBatches<T>) {
    return object.get_batch(indices, info);
  } else if constexpr (PlainBatches<T>) {
    return object.get_batch(indices);
  } else {
    std::vector<sample_of<T>> samples;
    samples.reserve(indices.size());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const SampleInfo sample(info, i);
      try {
        samples.push_back(get_sample(object, indices[i], sample));
      } catch (...) {
        rethrow_for_record(sample, indices[i]);
      }
    }
    return collate_records(object, std::move(samples), indices, info);
  }
}
}  // namespace detail

/// The batch type of a dataset-like type.
template <DatasetLike T>
using batch_of = std::remove_cvref_t<decltype(detail::read_batch(std::declval<T&>(), std::span<const std::int64_t>(),
                                                                 std::declval<const BatchInfo&>()))>;

/// Any object that satisfies `DatasetLike`, as a `Dataset`. Its `split()`, `train()`, `source_info(index)`,
/// `entry_key(index)` and `loader_defaults()` are used where it has them; without the last, what its `datum_type`, or
/// the sample that `get` returns, declares.
template <DatasetLike T>
class DatasetAdapter final : public Dataset<batch_of<T>> {
 public:
  explicit DatasetAdapter(T object) : object_(std::move(object)) {}

  T& object() { return object_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(object_.size()); }
  batch_of<T> get_batch(std::span<const std::int64_t> indices) override {
    BatchInfo info;
    info.indices.assign(indices.begin(), indices.end());
    return detail::read_batch(object_, indices, info);
  }
  batch_of<T> read(std::span<const std::int64_t> indices, const BatchInfo& info) override {
    return detail::read_batch(object_, indices, info);
  }
  State source_info(std::int64_t index) const override {
    if constexpr (requires {
                    { object_.source_info(index) } -> std::convertible_to<State>;
                  }) {
      return object_.source_info(index);
    } else {
      return {};
    }
  }
  std::optional<std::string> entry_key(std::int64_t index) const override {
    if constexpr (requires {
                    { object_.entry_key(index) } -> std::convertible_to<std::optional<std::string>>;
                  }) {
      return object_.entry_key(index);
    } else {
      return std::nullopt;
    }
  }
  LoaderDefaults loader_defaults() const override {
    if constexpr (requires {
                    { object_.loader_defaults() } -> std::same_as<LoaderDefaults>;
                  }) {
      return object_.loader_defaults();
    } else if constexpr (!std::is_void_v<typename detail::DatumOf<T>::type>) {
      return declared_defaults<typename detail::DatumOf<T>::type>();
    } else {
      return {};
    }
  }
  std::string split() const override {
    if constexpr (requires {
                    { object_.split() } -> std::convertible_to<std::string>;
                  }) {
      return object_.split();
    } else {
      return {};
    }
  }
  bool train() const override {
    if constexpr (requires {
                    { object_.train() } -> std::convertible_to<bool>;
                  }) {
      return object_.train();
    } else {
      return Dataset<batch_of<T>>::train();
    }
  }

 private:
  T object_;
};

/// `object` as a shared dataset: itself where it is a `Dataset` already, else in an adapter.
template <class T>
auto make_dataset(T object) {
  static_assert(DatasetLike<T>,
                "a dataset needs size() const, and either get_batch(std::span<const std::int64_t>) that returns a "
                "batch, or get(std::int64_t) with a collate(std::vector<Sample>) in its class or beside the sample; "
                "both may take a const BatchInfo& or const SampleInfo& besides");
  static_assert(detail::DatumFits<T>,
                "the datum_type that a dataset names must be the type of sample that its get "
                "returns");
  using B = batch_of<T>;
  if constexpr (std::derived_from<T, Dataset<B>>) {
    return std::shared_ptr<Dataset<B>>(std::make_shared<T>(std::move(object)));
  } else {
    return std::shared_ptr<Dataset<B>>(std::make_shared<DatasetAdapter<T>>(std::move(object)));
  }
}

}  // namespace danling::inline v0::data
