// A dataset whose samples a function changes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <danling/data/apply.hpp>
#include <danling/data/map_stream.hpp>
#include <danling/data/record_source.hpp>

namespace danling::inline v0::data {

/// See `map`.
template <RecordSource T, detail::Maps<detail::record_of<T>, SampleInfo> F>
class MapDataset : public detail::RecordsAbove<T> {
 public:
  MapDataset(T base, F function) : detail::RecordsAbove<T>(std::move(base)), function_(std::move(function)) {}

  std::int64_t size() const { return this->base_size(); }
  auto get(std::int64_t index, const SampleInfo& info) {
    return detail::apply_above<detail::record_of<T>>(below_, function_, this->base_get(index, info), info);
  }
  std::int64_t random_layers() const {
    return below_ + (detail::MapsInformed<F, detail::record_of<T>, SampleInfo> ? 1 : 0);
  }
  template <class S>
  requires detail::MemberCollate<detail::pointee_of<T>, S>
  auto collate(std::vector<S> samples) { return this->base().collate(std::move(samples)); }

 private:
  F function_;
  std::int64_t below_ = detail::RecordsAbove<T>::random_layers();
};

/// The dataset with `function(sample)` or `function(sample, const SampleInfo&)` called for every sample when it is
/// read: in the workers, in several threads at a time. Random numbers come from `info.random()`, and are others in
/// every map of a map. Takes an object that has `get`, or a shared pointer to one, and gives an object for loaders,
/// `make_dataset` and the other combinators. What has batches only is changed by `map_batches`.
template <RecordSource T, class F>
auto map(T dataset, F function) {
  static_assert(detail::Maps<F, detail::record_of<T>, SampleInfo>,
                "map needs a function that takes a sample of the dataset, or a sample and a const SampleInfo&, and can "
                "be called where it is const");
  return MapDataset<T, F>(std::move(dataset), std::move(function));
}

}  // namespace danling::inline v0::data
