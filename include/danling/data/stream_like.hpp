// Concepts of streams: objects that return batches, or records that become samples with a collate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <danling/data/batch_info.hpp>
#include <danling/data/batch_traits.hpp>
#include <danling/data/dataset_like.hpp>
#include <danling/data/record_stream.hpp>
#include <danling/data/sample.hpp>
#include <danling/data/throw_if_cancelled.hpp>

namespace danling::inline v0::data {

namespace detail {
template <class T>
using yielded_batch = typename unwrapped<std::remove_cvref_t<decltype(std::declval<T&>().next(std::int64_t{}))>>::type;
}  // namespace detail

/// `next(num_samples)` returns std::optional of a batch; has `reset(epoch)`, `state_dict()`, `load_state_dict(state)`.
template <class T>
concept BatchStream = detail::Restartable<T> && requires { requires BatchType<detail::yielded_batch<T>>; };

/// A `RecordStream` whose samples have a `collate`.
template <class T>
concept SampleStream = RecordStream<T> && Collates<T, detail::made<T>>;

/// Types that `make_stream` accepts.
template <class T>
concept StreamLike = BatchStream<T> || SampleStream<T>;

namespace detail {
template <class T>
struct StreamBatch {
  using type = decltype(collate_with(std::declval<T&>(), std::declval<std::vector<made<T>>>()));
};
template <BatchStream T>
struct StreamBatch<T> {
  using type = yielded_batch<T>;
};

template <class T>
auto make_batch(T& object, std::vector<yielded<T>> records, const BatchInfo& info) {
  std::vector<made<T>> samples;
  samples.reserve(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    throw_if_cancelled();
    const SampleInfo sample(info, i);
    try {
      samples.push_back(make_sample(object, std::move(records[i]), sample));
    } catch (...) {
      rethrow_for_record(sample, sample.index(), {});
    }
  }
  return collate_records(object, std::move(samples), info.indices, info);
}
}  // namespace detail

/// The batch type of a stream-like type.
template <StreamLike T>
using stream_batch_of = typename detail::StreamBatch<T>::type;

}  // namespace danling::inline v0::data
