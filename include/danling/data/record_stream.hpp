// Streams of single records: read sequentially, converted to samples by workers.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include <danling/data/batch_info.hpp>
#include <danling/data/dataset_like.hpp>
#include <danling/data/detail/declared.hpp>
#include <danling/data/throw_if_cancelled.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

namespace detail {
template <class T>
concept Restartable = Checkpointable<T> && requires(T& object, std::int64_t epoch) { object.reset(epoch); };

template <class Optional>
struct unwrapped {};
template <class V>
struct unwrapped<std::optional<V>> {
  using type = V;
};
template <class T>
using yielded = typename unwrapped<std::remove_cvref_t<decltype(std::declval<T&>().next())>>::type;

template <class T>
concept MakesInformed =
    requires(const T& object, yielded<T> record, const SampleInfo& info) { object.make(std::move(record), info); };
template <class T>
concept MakesPlain = requires(const T& object, yielded<T> record) { object.make(std::move(record)); };

/// Returns the sample of a record; the record itself if `T` has no `make`.
template <class T>
auto make_sample(const T& object, yielded<T> record, const SampleInfo& info) {
  if constexpr (MakesInformed<T>) {
    return object.make(std::move(record), info);
  } else if constexpr (MakesPlain<T>) {
    return object.make(std::move(record));
  } else {
    return record;
  }
}
/// The same for a stream that does not take the info.
template <class T>
  requires(!MakesInformed<T>)
auto make_sample(const T& object, yielded<T> record) {
  if constexpr (MakesPlain<T>) {
    return object.make(std::move(record));
  } else {
    return record;
  }
}
template <class T>
using made = std::remove_cvref_t<decltype(make_sample(std::declval<const T&>(), std::declval<yielded<T>>(),
                                                      std::declval<const SampleInfo&>()))>;
}  // namespace detail

/// `next()` returns std::optional of a record, in one thread at a time; `reset(epoch)`, `state_dict()`,
/// `load_state_dict(state)` as in `Stream`. Optional: `make(record) const` or `make(record, const SampleInfo&) const`
/// converts a record to a sample, in several threads at a time, also concurrently with `next()` and `skip(n)`;
/// `skip(n)` skips up to n records and returns their number.
template <class T>
concept RecordStream = detail::Restartable<T> && requires {
  typename detail::yielded<T>;
  typename detail::made<T>;
};

namespace detail {
template <RecordStream T>
std::int64_t skip_records(T& object, std::int64_t count) {
  if constexpr (requires {
                  { object.skip(count) } -> std::convertible_to<std::int64_t>;
                }) {
    return object.skip(count);
  } else {
    std::int64_t done = 0;
    while (done < count && object.next()) {
      ++done;
      throw_if_cancelled();
    }
    return done;
  }
}

/// As `random_layers_of` for datasets.
template <class T>
std::int64_t random_layers_of_stream(const T& object) {
  if constexpr (requires {
                  { object.random_layers() } -> std::convertible_to<std::int64_t>;
                }) {
    return object.random_layers();
  } else if constexpr (RecordStream<T>) {
    return MakesInformed<T> ? 1 : 0;
  } else {
    return 0;
  }
}
}  // namespace detail

}  // namespace danling::inline v0::data
