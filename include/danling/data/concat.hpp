// Concatenation of datasets or of streams.
#pragma once

#include <utility>
#include <vector>

#include <danling/data/concat_dataset.hpp>
#include <danling/data/concat_stream.hpp>

namespace danling::inline v0::data {

namespace detail {
template <class T>
concept Numbered = RecordSource<T> || DatasetLike<pointee_of<T>>;

/// Fails to compile, with the reason, if the datasets cannot be concatenated.
template <class... T>
constexpr bool require_parts() {
  static_assert(!(RecordStream<T> || ...) || (RecordStream<T> && ...),
                "concat joins datasets with datasets, and streams of records with streams of records");
  static_assert((RecordStream<T> || ...) || (Numbered<T> && ...),
                "concat needs datasets, std::shared_ptrs to datasets, or streams of records");
  if constexpr ((Numbered<T> && ...)) {
    static_assert(JoinedOf<pointee_of<T>...>::fits,
                  "the datasets of concat must have samples of one type (map can convert them), or batches of one type "
                  "with `B merge_batches(std::vector<B>, std::span<const std::int64_t>)` in its namespace");
  }
  return true;
}
}  // namespace detail

/// Concatenates `parts`: the first record of a part follows the last record of the previous part. Datasets of any
/// types, with one sample type, which are collated as the first part does, or with one batch type, merged by
/// `merge_batches`; or streams of any types with one sample type. `split()` is the split that all parts share; it is
/// training data if all parts are. Returns an object for loaders and other combinators.
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

/// The same for a number of parts known only at run time.
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
