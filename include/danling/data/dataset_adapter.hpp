// Adapter from any dataset-like object to a `Dataset`.
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

#include <danling/data/batch_info.hpp>
#include <danling/data/dataset.hpp>
#include <danling/data/dataset_like.hpp>
#include <danling/data/datum.hpp>
#include <danling/data/detail/declared.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

namespace detail {
template <class T>
concept NamesDatum = requires { typename T::datum_type; };
/// The type that declares a dataset's loader defaults: its `datum_type`, else the result of `get`.
template <class T>
struct DatumOf {
  using type = void;
};
template <SampleSource T>
  requires(!NamesDatum<T>)
struct DatumOf<T> {
  using type = sample_of<T>;
};
template <NamesDatum T>
struct DatumOf<T> {
  using type = typename T::datum_type;
};
/// True if the samples are of the declared `datum_type`, or the dataset declares none or returns no samples.
template <class T>
concept DatumFits = !NamesDatum<T> || !SampleSource<T> || std::same_as<typename DatumOf<T>::type, sample_of<T>>;
}  // namespace detail

/// Wraps any object that satisfies `DatasetLike` as a `Dataset`. Uses its `split()`, `train()`, `source_info(index)`,
/// `entry_key(index)`, `random_layers()` and `loader_defaults()` if it has them; without the last, the declarations of
/// its `datum_type`, or of the sample type that `get` returns.
template <DatasetLike T>
class DatasetAdapter final : public Dataset<batch_of<T>> {
 public:
  explicit DatasetAdapter(T object) : object_(std::make_shared<T>(std::move(object))) {}
  explicit DatasetAdapter(std::shared_ptr<T> object) : object_(std::move(object)) {}

  T& object() { return *object_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(object_->size()); }
  batch_of<T> get_batch(std::span<const std::int64_t> indices) override {
    return detail::read_batch(*object_, indices, BatchInfo::of(indices));
  }
  batch_of<T> read(std::span<const std::int64_t> indices, const BatchInfo& info) override {
    return detail::read_batch(*object_, indices, info);
  }
  auto get(std::int64_t index, const SampleInfo& info) const
    requires SampleSource<T>
  {
    return detail::get_sample(*object_, index, info);
  }
  template <class S>
    requires detail::MemberCollate<T, S>
  auto collate(std::vector<S> samples) const {
    return object_->collate(std::move(samples));
  }
  std::int64_t random_layers() const override { return detail::random_layers_of(*object_); }
  State source_info(std::int64_t index) const override { return detail::source_info_of(*object_, index); }
  std::optional<std::string> entry_key(std::int64_t index) const override {
    return detail::entry_key_of(*object_, index);
  }
  LoaderDefaults loader_defaults() const override {
    return detail::datum_defaults_of<T, typename detail::DatumOf<T>::type>(*object_);
  }
  std::string split() const override { return detail::split_of(*object_); }
  bool train() const override { return detail::train_of(*object_); }

 private:
  std::shared_ptr<T> object_;
};

namespace detail {
template <class T>
concept GetsBatches = requires(T& object, std::span<const std::int64_t> indices) { object.get_batch(indices); } ||
                      requires(T& object, std::span<const std::int64_t> indices, const BatchInfo& info) {
                        object.get_batch(indices, info);
                      };

/// Fails to compile, with the reason, if `T` is not a dataset.
template <class T>
constexpr bool require_dataset() {
  static_assert(Sized<T>, "a dataset needs `std::int64_t size() const`, the number of its records");
  static_assert(GetsBatches<T> || PlainSamples<T> || InformedSamples<T>,
                "a dataset needs `Sample get(std::int64_t index)` or `Batch get_batch(std::span<const std::int64_t>)`, "
                "which may also take a `const SampleInfo&` or `const BatchInfo&`");
  if constexpr (PlainSamples<T> || InformedSamples<T>) {
    static_assert(BatchSource<T> || !Sized<T> || SampleSource<T>,
                  "samples need `Batch collate(std::vector<Sample>)` in the dataset, static in the sample's type or "
                  "in its namespace, and it must return a batch; tensors, numbers and standard containers of them "
                  "have one");
  } else {
    static_assert(!GetsBatches<T> || PlainBatches<T> || InformedBatches<T>,
                  "get_batch must return a batch: it needs `std::int64_t size() const` and `B to(c10::Device) const`");
  }
  static_assert(DatumFits<T>, "the datum_type that a dataset declares must be the sample type that its get returns");
  return true;
}
}  // namespace detail

/// Returns a dataset, or a shared pointer to one, as a shared `Dataset`: unchanged if it is one, else in an adapter.
template <class T>
auto make_dataset(T dataset) {
  using D = detail::pointee_of<T>;
  static_assert(detail::require_dataset<D>());
  if constexpr (DatasetLike<D>) {
    using B = batch_of<D>;
    using Made = std::conditional_t<std::derived_from<D, Dataset<B>>, D, DatasetAdapter<D>>;
    std::shared_ptr<D> object = detail::share(std::move(dataset));
    if constexpr (std::same_as<Made, D>) {
      return std::shared_ptr<Dataset<B>>(std::move(object));
    } else {
      return std::shared_ptr<Dataset<B>>(std::make_shared<Made>(std::move(object)));
    }
  }
}

}  // namespace danling::inline v0::data
