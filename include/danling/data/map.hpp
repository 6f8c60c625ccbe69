// Datasets and streams with a function applied to each sample.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <danling/data/detail/apply.hpp>
#include <danling/data/detail/record_source.hpp>
#include <danling/data/map_stream.hpp>

namespace danling::inline v0::data {

/// See `map`. Copies share the dataset.
template <class T, detail::Maps<detail::record_of<T>, SampleInfo> F>
class MapDataset : public detail::ParentDataset<T> {
  using Parent = detail::ParentDataset<T>;
  using Before = detail::record_of<T>;

 public:
  MapDataset(std::shared_ptr<T> base, F function) : Parent(std::move(base)), function_(std::move(function)) {}

  std::int64_t size() const { return this->base_size(); }
  auto get(std::int64_t index, const SampleInfo& info) const {
    return detail::apply_above<Before>(below_, function_, detail::record_at(this->base(), index, info), info);
  }
  auto get(std::int64_t index) const { return detail::look_at(*this, index); }
  std::int64_t random_layers() const { return below_ + (detail::MapsInformed<F, Before, SampleInfo> ? 1 : 0); }

 private:
  F function_;
  std::int64_t below_ = Parent::random_layers();
};

/// Applies `function(sample)` or `function(sample, const SampleInfo&)` to every sample of a dataset or stream when it
/// is read: in the workers, in several threads at a time. Random numbers come from `info.random()` and differ between
/// nested maps. Accepts an object with `get`, a shared pointer to one, batches with `uncollate`, or a stream of
/// records. Returns an object for loaders, `make_dataset` or `make_stream`, and other combinators. For whole batches
/// use `map_batches`.
template <class T, class F>
auto map(T source, F function) {
  if constexpr (RecordStream<T>) {
    static_assert(detail::Maps<F, detail::made<T>, SampleInfo>,
                  "map needs a function that takes a sample of the stream, or a sample and a const SampleInfo&, and "
                  "that can be called as const");
    static_assert(detail::MapsToSample<F, detail::made<T>, SampleInfo>,
                  "the function of map must return the changed sample");
    return MapStream<T, F>(std::move(source), std::move(function));
  } else {
    static_assert(detail::require_records<T>());
    static_assert(detail::Maps<F, detail::record_of<T>, SampleInfo>,
                  "map needs a function that takes a sample of the dataset, or a sample and a const SampleInfo&, and "
                  "that can be called as const");
    static_assert(detail::MapsToSample<F, detail::record_of<T>, SampleInfo>,
                  "the function of map must return the changed sample");
    return MapDataset<detail::pointee_of<T>, F>(detail::share(std::move(source)), std::move(function));
  }
}

}  // namespace danling::inline v0::data
