// Datasets and streams of the records that satisfy a predicate.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <danling/data/stream_parts.hpp>
#include <danling/data/subset.hpp>

namespace danling::inline v0::data {

struct FilterOptions {
  /// Number of threads that read and call the predicate, at least 1; above 1, both must be thread-safe.
  std::int64_t num_threads = 1;
};

namespace detail {
/// Returns the indices in [0, size) for which `keep` is true, ascending.
std::vector<std::int64_t> indices_where(std::int64_t size, std::int64_t num_threads,
                                        const std::function<bool(std::int64_t)>& keep);

/// Returns a subset with the declarations of the whole dataset.
template <class T>
Subset<T> subset_where(std::shared_ptr<T> base, std::int64_t num_threads,
                       const std::function<bool(std::int64_t)>& keep) {
  IndexMap kept(indices_where(static_cast<std::int64_t>(base->size()), num_threads, keep));
  std::string split = detail::split_of(*base);
  const bool train = detail::train_of(*base);
  return Subset<T>(std::move(base), std::move(kept), std::move(split), train);
}
}  // namespace detail

/// Returns the records of a dataset whose sample satisfies `predicate(const S&)`, in order, as a subset with the same
/// `split()` and `train()`. Reads every record once, immediately. If `get` takes a `SampleInfo`, it is that of epoch 0
/// without a seed, so random transforms differ from those in training. To select by index without reading, use
/// `filter_indices`.
template <class T, class P>
auto filter(T dataset, const P& predicate, FilterOptions options) {
  static_assert(!detail::Restarts<detail::pointee_of<T>>,
                "filter takes options for a dataset only: one thread reads a stream");
  static_assert(detail::require_records<T>());
  if constexpr (RecordSource<T>) {
    static_assert(std::predicate<const P&, const detail::record_of<T>&>,
                  "filter needs a predicate that takes a const sample of the dataset and returns a bool");
    const auto base = detail::share(std::move(dataset));
    return detail::subset_where(base, options.num_threads, [&](std::int64_t index) {
      const BatchInfo batch = BatchInfo::of({&index, 1});
      const SampleInfo info(batch, 0);
      try {
        const auto sample = detail::record_at(*base, index, info);
        return static_cast<bool>(std::invoke(predicate, sample));
      } catch (...) {
        detail::rethrow_for_record(info, index, detail::source_of_failed(*base, index));
      }
    });
  }
}

/// The same for a stream: the samples that satisfy the predicate; batches stay full. The predicate, and every `map`
/// below it, run in the thread that reads the stream, not in the workers: filter before expensive maps.
template <class T, class P>
auto filter(T source, P predicate) {
  if constexpr (RecordStream<T>) {
    static_assert(!detail::MakesInformed<T>,
                  "filter a stream before a map whose function takes a SampleInfo: the samples that are kept "
                  "determine its content");
    static_assert(std::predicate<const P&, const detail::made<T>&>,
                  "filter needs a predicate that takes a const sample of the stream and returns a bool");
    return FilterStream<T, P>(std::move(source), std::move(predicate));
  } else {
    static_assert(detail::require_records<T>());
    return filter(std::move(source), predicate, FilterOptions());
  }
}

/// Returns the records whose index satisfies `predicate(index)`, as a subset with the same `split()` and `train()`: for
/// properties known without reading, such as labels or lengths in a list.
template <class T, class P>
auto filter_indices(T dataset, const P& predicate) {
  static_assert(detail::require_numbered<T>());
  static_assert(std::predicate<const P&, std::int64_t>,
                "filter_indices needs a predicate that takes the index of a record and returns a bool");
  return detail::subset_where(detail::share(std::move(dataset)), 1,
                              [&](std::int64_t index) { return static_cast<bool>(predicate(index)); });
}

}  // namespace danling::inline v0::data
