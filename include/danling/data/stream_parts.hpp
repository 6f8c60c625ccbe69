// Streams with some of the records of another: those that satisfy a predicate, or the first ones.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/data/record_stream.hpp>
#include <danling/data/sample.hpp>
#include <danling/data/throw_if_cancelled.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

namespace detail {
/// Forwards the declarations, `make` and collate of the stream below.
template <RecordStream T>
class StreamWrapper {
 public:
  explicit StreamWrapper(T base) : base_(std::move(base)) {}

  auto make(yielded<T> record, const SampleInfo& info) const
    requires MakesInformed<T>
  {
    return base_.make(std::move(record), info);
  }
  auto make(yielded<T> record) const
    requires(!MakesInformed<T> && MakesPlain<T>)
  {
    return base_.make(std::move(record));
  }
  template <class S>
    requires MemberCollate<T, S>
  auto collate(std::vector<S> samples) {
    return base_.collate(std::move(samples));
  }
  std::int64_t random_layers() const { return random_layers_of_stream(base_); }
  LoaderDefaults loader_defaults() const { return datum_defaults_of<T, made<T>>(base_); }
  std::string split() const { return detail::split_of(base_); }
  bool train() const { return detail::train_of(base_); }

 protected:
  T base_;
};
}  // namespace detail

/// See `filter`. Returns samples.
template <RecordStream T, std::predicate<const detail::made<T>&> P>
  requires(!detail::MakesInformed<T>)
class FilterStream {
  using Sample = detail::made<T>;

 public:
  FilterStream(T base, P predicate) : base_(std::move(base)), predicate_(std::move(predicate)) {}

  std::optional<Sample> next() {
    while (auto record = base_.next()) {
      throw_if_cancelled();
      std::optional<Sample> sample(detail::make_sample(base_, std::move(*record)));
      if (std::invoke(predicate_, std::as_const(*sample))) {
        return sample;
      }
    }
    return std::nullopt;
  }
  void reset(std::int64_t epoch) { base_.reset(epoch); }
  State state_dict() const { return base_.state_dict(); }
  void load_state_dict(const State& state) { base_.load_state_dict(state); }
  template <class S>
    requires detail::MemberCollate<T, S>
  auto collate(std::vector<S> samples) {
    return base_.collate(std::move(samples));
  }
  LoaderDefaults loader_defaults() const { return detail::datum_defaults_of<T, Sample>(base_); }
  std::string split() const { return detail::split_of(base_); }
  bool train() const { return detail::train_of(base_); }

 private:
  T base_;
  P predicate_;
};

/// See `take`.
template <RecordStream T>
class TakeStream : public detail::StreamWrapper<T> {
  using detail::StreamWrapper<T>::base_;

 public:
  TakeStream(T base, std::int64_t count) : detail::StreamWrapper<T>(std::move(base)), count_(count) {
    danling::detail::check<DataError>(count >= 0, "data.take", "expected a number of samples of at least 0, got ",
                                      count);
  }

  std::optional<detail::yielded<T>> next() {
    if (taken_ == count_) {
      return std::nullopt;
    }
    auto record = base_.next();
    taken_ += record ? 1 : 0;
    return record;
  }
  std::int64_t skip(std::int64_t count) {
    const std::int64_t skipped = detail::skip_records(base_, std::min(count, count_ - taken_));
    taken_ += skipped;
    return skipped;
  }
  void reset(std::int64_t epoch) {
    base_.reset(epoch);
    taken_ = 0;
  }
  State state_dict() const {
    State state;
    state["taken"] = taken_;
    state["base"] = base_.state_dict();
    return state;
  }
  void load_state_dict(const State& state) {
    const std::int64_t taken = state.at("taken").integer();
    danling::detail::check<StateError>(taken >= 0 && taken <= count_, "data.take", "expected a state of up to ", count_,
                                       " samples, got one of ", taken);
    base_.load_state_dict(state.at("base"));
    taken_ = taken;
  }

 private:
  std::int64_t count_;
  std::int64_t taken_ = 0;
};

/// Returns a stream of the first `count` samples of every epoch.
template <class T>
auto take(T stream, std::int64_t count) {
  static_assert(RecordStream<T>, "take needs a stream of records; the first records of a dataset are a subset of it");
  return TakeStream<T>(std::move(stream), count);
}

}  // namespace danling::inline v0::data
