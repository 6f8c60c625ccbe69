// Datasets: a known number of records, read by index in whole batches.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <danling/data/batch.hpp>
#include <danling/data/batch_traits.hpp>
#include <danling/data/sample.hpp>

namespace danling::inline v0::data {

/// Records 0 .. size()-1, read as batches of type `B`.
template <class B>
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Number of records; constant while a loader uses the dataset.
  virtual std::int64_t size() const = 0;

  /// The batch of these records, in this order. Called once per batch; indices may repeat.
  virtual B get_batch(std::span<const std::int64_t> indices) = 0;

  /// What part of the data this is ("train"), or empty where the dataset does not know.
  virtual std::string split() const { return {}; }

  /// Whether this is training data, which runners shuffle by default.
  virtual bool train() const { return split() == "train"; }
};

/// `size()` and `get_batch(indices)`.
template <class T>
concept BatchSource = requires(T& object, const T& constant, std::span<const std::int64_t> indices) {
  { constant.size() } -> std::convertible_to<std::int64_t>;
  { object.get_batch(indices) } -> BatchType;
};

/// `size()`, `get(index)` and a `collate` for what `get` returns, in the type or beside the sample's type.
template <class T>
concept SampleSource = requires(T& object, const T& constant, std::int64_t index) {
  { constant.size() } -> std::convertible_to<std::int64_t>;
  requires Collates<T, std::remove_cvref_t<decltype(object.get(index))>>;
};

/// What `make_dataset` takes.
template <class T>
concept DatasetLike = BatchSource<T> || SampleSource<T>;

namespace detail {
template <class T>
auto read_batch(T& object, std::span<const std::int64_t> indices) {
  if constexpr (BatchSource<T>) {
    return object.get_batch(indices);
  } else {
    using S = std::remove_cvref_t<decltype(object.get(std::int64_t{}))>;
    std::vector<S> samples;
    samples.reserve(indices.size());
    for (const std::int64_t index : indices) {
      samples.push_back(object.get(index));
    }
    return collate_with(object, std::move(samples));
  }
}
}  // namespace detail

/// The batch type of a dataset-like type.
template <DatasetLike T>
using batch_of = std::remove_cvref_t<decltype(detail::read_batch(std::declval<T&>(), std::span<const std::int64_t>()))>;

/// Any object that satisfies `DatasetLike`, as a `Dataset`. Its `split()` and `train()` are used where it has them.
template <DatasetLike T>
class DatasetAdapter final : public Dataset<batch_of<T>> {
 public:
  explicit DatasetAdapter(T object) : object_(std::move(object)) {}

  T& object() { return object_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(object_.size()); }
  batch_of<T> get_batch(std::span<const std::int64_t> indices) override { return detail::read_batch(object_, indices); }
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
                "batch, or get(std::int64_t) with a collate(std::vector<Sample>) in its class or beside the sample");
  using B = batch_of<T>;
  if constexpr (std::derived_from<T, Dataset<B>>) {
    return std::shared_ptr<Dataset<B>>(std::make_shared<T>(std::move(object)));
  } else {
    return std::shared_ptr<Dataset<B>>(std::make_shared<DatasetAdapter<T>>(std::move(object)));
  }
}

}  // namespace danling::inline v0::data
