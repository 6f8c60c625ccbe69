// Access to single records by index, for combinators of datasets.
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

#include <danling/data/dataset_like.hpp>
#include <danling/data/detail/declared.hpp>
#include <danling/data/uncollate.hpp>

namespace danling::inline v0::data {

namespace detail {
template <class T>
concept GetsRecords = PlainSamples<T> || InformedSamples<T>;
template <class T>
concept BatchesOfOne = !GetsRecords<T> && BatchSource<T> && requires { requires Uncollates<batch_of<T>>; };
/// True if `get` reads a batch of one: reading many records as a batch is then faster.
template <class T>
concept ReadsWhole = BatchesOfOne<T> || requires { requires T::uncollates; };

/// The result of `get`, or the sample of a batch of one if there is no `get`.
template <class T>
auto record_at(T& object, std::int64_t index, const SampleInfo& info) {
  if constexpr (GetsRecords<T>) {
    return get_sample(object, index, info);
  } else {
    const BatchInfo one = info.alone();
    return uncollate_one(read_batch(object, std::span<const std::int64_t>(&index, 1), one));
  }
}

/// Reads a record without a loader: in epoch 0, without a seed.
template <class T>
auto look_at(T& dataset, std::int64_t index) {
  const BatchInfo info = BatchInfo::of({&index, 1});
  return dataset.get(index, SampleInfo(info, 0));
}
}  // namespace detail

/// Has `size()` and `get(index)` or `get(index, const SampleInfo&)`, in the type or the pointee of a shared pointer,
/// without need of a `collate`; or has batches with `uncollate`.
template <class T>
concept RecordSource = detail::Sized<detail::pointee_of<T>> &&
                       (detail::GetsRecords<detail::pointee_of<T>> || detail::BatchesOfOne<detail::pointee_of<T>>);

namespace detail {
template <RecordSource T>
using record_of = std::remove_cvref_t<decltype(record_at(std::declval<pointee_of<T>&>(), std::int64_t{},
                                                         std::declval<const SampleInfo&>()))>;
/// void if there are no single records.
template <class T>
struct RecordOf {
  using type = void;
};
template <RecordSource T>
struct RecordOf<T> {
  using type = record_of<T>;
};

/// Base of datasets over another dataset. Shares it, and forwards its declarations and its collate.
template <class T>
class ParentDataset {
 public:
  explicit ParentDataset(std::shared_ptr<T> base) : base_(std::move(base)) {}

  State source_info(std::int64_t index) const { return detail::source_info_of(*base_, index); }
  std::optional<std::string> entry_key(std::int64_t index) const { return detail::entry_key_of(*base_, index); }
  std::int64_t random_layers() const { return detail::random_layers_of(*base_); }
  LoaderDefaults loader_defaults() const { return datum_defaults_of<T, typename RecordOf<T>::type>(*base_); }
  std::string split() const { return detail::split_of(*base_); }
  bool train() const { return detail::train_of(*base_); }
  template <class S>
    requires(!ReadsWhole<T> && MemberCollate<T, S>)
  auto collate(std::vector<S> samples) const {
    return base_->collate(std::move(samples));
  }

 protected:
  T& base() const { return *base_; }
  std::int64_t base_size() const { return static_cast<std::int64_t>(base_->size()); }

 private:
  std::shared_ptr<T> base_;
};

/// True if `T` is read sequentially, like a stream.
template <class T>
concept Restarts = requires(T& object, std::int64_t epoch) { object.reset(epoch); };

/// Fails to compile, with the reason, if `T` has no single samples.
template <class T>
constexpr bool require_records() {
  using D = pointee_of<T>;
  if constexpr (BatchSource<D>) {
    static_assert(RecordSource<D>,
                  "this data has only whole batches: add `get`, or a free function `Sample uncollate(Batch)` for the "
                  "type of its batches; or change its batches by map_batches");
  } else if constexpr (!RecordSource<D>) {
    static_assert(Restarts<D> || RecordSource<D>,
                  "single samples come from a dataset, an object with `std::int64_t size() const` and `get`, from a "
                  "std::shared_ptr to one, or from a stream of records");
    static_assert(
        !Restarts<D> || RecordSource<D>,
        "this stream has no records: it needs `std::optional<Record> next()`, `danling::State state_dict() "
        "const` and `void load_state_dict(const danling::State&)`; batches of a stream are changed by map_batches");
  }
  return true;
}

/// Fails to compile, with the reason, if records of `T` cannot be selected by index.
template <class T>
constexpr bool require_numbered() {
  using D = pointee_of<T>;
  static_assert(!Restarts<D>,
                "records are selected by index, which a stream does not have: select among the files that it "
                "reads, or use filter or take");
  if constexpr (!Restarts<D>) {
    static_assert(RecordSource<D> || BatchSource<D>,
                  "records are selected from a dataset, an object with `std::int64_t size() const` and `get` or "
                  "`get_batch`, or from a std::shared_ptr to one");
  }
  return true;
}
}  // namespace detail

}  // namespace danling::inline v0::data
