// A stream with a function applied to each record, in the workers: see `map`.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <danling/data/detail/apply.hpp>
#include <danling/data/record_stream.hpp>
#include <danling/data/sample.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// See `map`.
template <RecordStream T, detail::Maps<detail::made<T>, SampleInfo> F>
class MapStream {
  using Record = detail::yielded<T>;
  using Before = detail::made<T>;

 public:
  MapStream(T base, F function) : base_(std::move(base)), function_(std::move(function)) {}

  std::optional<Record> next() { return base_.next(); }
  /// Takes no `info` if neither the stream below nor the function takes it: then a filter may follow.
  auto make(Record record) const
    requires(!detail::MakesInformed<T> && !detail::MapsInformed<F, Before, SampleInfo>)
  {
    return std::invoke(function_, detail::make_sample(base_, std::move(record)));
  }
  auto make(Record record, const SampleInfo& info) const
    requires(detail::MakesInformed<T> || detail::MapsInformed<F, Before, SampleInfo>)
  {
    return detail::apply_above<Before>(below_, function_, detail::make_sample(base_, std::move(record), info), info);
  }
  std::int64_t random_layers() const { return below_ + (detail::MapsInformed<F, Before, SampleInfo> ? 1 : 0); }
  template <class S>
    requires detail::MemberCollate<T, S>
  auto collate(std::vector<S> samples) {
    return base_.collate(std::move(samples));
  }

  std::int64_t skip(std::int64_t count) { return detail::skip_records(base_, count); }
  void reset(std::int64_t epoch) { base_.reset(epoch); }
  State state_dict() const { return base_.state_dict(); }
  void load_state_dict(const State& state) { base_.load_state_dict(state); }
  LoaderDefaults loader_defaults() const { return detail::datum_defaults_of<T, Before>(base_); }
  std::string split() const { return detail::split_of(base_); }
  bool train() const { return detail::train_of(base_); }

 private:
  T base_;
  F function_;
  std::int64_t below_ = detail::random_layers_of_stream(base_);
};

}  // namespace danling::inline v0::data
