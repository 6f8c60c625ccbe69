// Several datasets, or several streams, one after another as one.
#pragma once

#include <utility>
#include <vector>

#include <danling/data/concat_dataset.hpp>
#include <danling/data/concat_stream.hpp>

namespace danling::inline v0::data {

namespace detail {
template <class T>
concept Numbered = RecordSource<T> || DatasetLike<pointee_of<T>>;

/// Says what keeps datasets from being parts of one.
template <class... T>
constexpr bool require_parts() {
  static_assert(!(RecordStream<T> || ...) || (RecordStream<T> && ...),
                "concat joins datasets with datasets, and streams of records with streams of records");
  static_assert((RecordStream<T> || ...) || (Numbered<T> && ...),
                "concat needs datasets, std::shared_ptrs to datasets, or streams of records");
  if constexpr ((Numbered<T> && ...)) {
    static_assert(JoinedOf<pointee_of<T>...>::fits,
                  "the datasets of concat must give samples of one type, to which map can bring them, or batches of "
                  "one type that has `B merge_batches(std::vector<B>, std::span<const std::int64_t>)` beside it");
  }
  return true;
}
}  // namespace detail

/// `parts` one after another: record 0 of the second follows the last of the first, of a stream its first sample.
/// Datasets may be of any types that give samples of one type, collated as the first part does, or batches of one type,
/// which `merge_batches` puts together; streams of any that give samples of one type. `split()` is what all parts say,
/// training data is what all parts are. Gives an object for loaders and the other combinators.
template <class First, class... Rest>
auto concat(First first, Rest... rest) {
  if constexpr (RecordStream<First> && (RecordStream<Rest> && ...)) {
    return detail::stream_of_parts(/*interleaved=*/false, std::move(first), std::move(rest)...);
  } else {
    static_assert(detail::require_parts<First, Rest...>());
    using Made = typename detail::JoinedOf<detail::pointee_of<First>, detail::pointee_of<Rest>...>::type;
    return Made(std::vector<typename Made::Part>{Made::part(std::move(first)), Made::part(std::move(rest))...});
  }
}

/// The same for a number of parts that is not known before.
template <class T>
auto concat(std::vector<T> parts) {
  if constexpr (RecordStream<T>) {
    return detail::stream_of_vector(/*interleaved=*/false, std::move(parts));
  } else {
    static_assert(detail::require_parts<T>());
    using Made = typename detail::JoinedOf<detail::pointee_of<T>>::type;
    std::vector<typename Made::Part> made;
    for (T& part : parts) {
      made.push_back(Made::part(std::move(part)));
    }
    return Made(std::move(made));
  }
}

}  // namespace danling::inline v0::data
