// Any object that is like a dataset, as a `Dataset`.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <danling/data/batch_info.hpp>
#include <danling/data/dataset.hpp>
#include <danling/data/dataset_like.hpp>
#include <danling/data/datum.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

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
}  // namespace detail

/// Any object that satisfies `DatasetLike`, as a `Dataset`. Its `split()`, `train()`, `source_info(index)`,
/// `entry_key(index)`, `random_layers()` and `loader_defaults()` are used where it has them; without the last, what its
/// `datum_type`, or the sample that `get` returns, declares.
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
  std::int64_t random_layers() const override { return detail::random_layers_of(object_); }
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

namespace detail {
template <class T>
concept GetsBatches = requires(T& object, std::span<const std::int64_t> indices) {
  object.get_batch(indices);
}
|| requires(T& object, std::span<const std::int64_t> indices, const BatchInfo& info) {
  object.get_batch(indices, info);
};

/// Says what keeps `T` from being a dataset.
template <class T>
constexpr bool require_dataset() {
  static_assert(Sized<T>, "a dataset needs `std::int64_t size() const`, the number of its records");
  static_assert(GetsBatches<T> || PlainSamples<T> || InformedSamples<T>,
                "a dataset needs `Sample get(std::int64_t index)` or `Batch get_batch(std::span<const std::int64_t>)`, "
                "which may take a `const SampleInfo&` or `const BatchInfo&` besides");
  if constexpr (PlainSamples<T> || InformedSamples<T>) {
    static_assert(BatchSource<T> || !Sized<T> || SampleSource<T>,
                  "samples need `Batch collate(std::vector<Sample>)` in the dataset, static in the sample's type or "
                  "beside that, and what it returns must be a batch; tensors, numbers and standard containers of them "
                  "have one");
  } else {
    static_assert(!GetsBatches<T> || PlainBatches<T> || InformedBatches<T>,
                  "get_batch must return a batch: it needs `std::int64_t size() const` and `B to(c10::Device) const`");
  }
  static_assert(DatumFits<T>, "the datum_type that a dataset names must be the type of sample that its get returns");
  return true;
}
}  // namespace detail

/// `object` as a shared dataset: itself where it is a `Dataset` already, else in an adapter.
template <class T>
auto make_dataset(T object) {
  static_assert(detail::require_dataset<T>());
  if constexpr (DatasetLike<T>) {
    using B = batch_of<T>;
    using Made = std::conditional_t<std::derived_from<T, Dataset<B>>, T, DatasetAdapter<T>>;
    return std::shared_ptr<Dataset<B>>(std::make_shared<Made>(std::move(object)));
  }
}

}  // namespace danling::inline v0::data
