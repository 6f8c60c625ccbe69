// A dataset of the records for which a predicate holds.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <danling/data/map_batches.hpp>
#include <danling/data/record_source.hpp>
#include <danling/data/subset.hpp>

namespace danling::inline v0::data {

struct FilterOptions {
  /// Threads that read and ask the predicate; with more than 1 both must be safe to call in several at a time.
  std::int64_t num_threads = 1;
};

namespace detail {
/// The numbers in [0, size) that `keep` keeps, ascending.
std::vector<std::int64_t> indices_where(std::int64_t size, std::int64_t num_threads,
                                        const std::function<bool(std::int64_t)>& keep);
}  // namespace detail

/// See `filter`.
template <RecordSource T>
class FilterDataset : public detail::RecordsAbove<T> {
  using Above = detail::RecordsAbove<T>;

 public:
  template <std::predicate<const detail::record_of<T>&> P>
  FilterDataset(T base, const P& predicate, FilterOptions options) : Above(std::move(base)) {
    indices_ = detail::indices_where(this->base_size(), options.num_threads, [&](std::int64_t index) {
      const BatchInfo batch = detail::info_of({index});
      const SampleInfo info(batch, 0);
      try {
        const auto sample = this->base_get(index, info);
        return static_cast<bool>(std::invoke(predicate, sample));
      } catch (...) {
        detail::rethrow_for_record(info, index);
      }
    });
  }

  /// Which records of the dataset below these are, ascending.
  const std::vector<std::int64_t>& indices() const { return indices_; }

  std::int64_t size() const { return static_cast<std::int64_t>(indices_.size()); }
  auto get(std::int64_t index, const SampleInfo& info) { return this->base_get(of_base(index), info); }
  template <class S>
  requires detail::MemberCollate<detail::pointee_of<T>, S>
  auto collate(std::vector<S> samples) { return this->base().collate(std::move(samples)); }
  State source_info(std::int64_t index) const { return Above::source_info(of_base(index)); }
  std::optional<std::string> entry_key(std::int64_t index) const { return Above::entry_key(of_base(index)); }

 private:
  std::int64_t of_base(std::int64_t index) const {
    check<DataError>(index >= 0 && index < size(), "data.filter", "expected an index in [0, ", size(), "), got ",
                     index);
    return indices_[static_cast<std::size_t>(index)];
  }

  std::vector<std::int64_t> indices_;
};

/// The records whose sample satisfies `predicate(const S&)`, in their order. Every record is read once, here; where
/// `get` asks for a `SampleInfo` it is that of epoch 0 without a seed, so that what is random there is not what
/// training sees. `filter_indices` reads nothing.
template <RecordSource T, class P>
auto filter(T dataset, const P& predicate, FilterOptions options = {}) {
  static_assert(std::predicate<const P&, const detail::record_of<T>&>,
                "filter needs a predicate that takes a const sample of the dataset and gives a bool");
  return FilterDataset<T>(std::move(dataset), predicate, options);
}

/// The records of any dataset whose number satisfies `predicate(index)`, as a subset that keeps its `split()` and
/// `train()`: for what is known without reading, such as labels or lengths in a list.
template <class T, std::predicate<std::int64_t> P>
auto filter_indices(T dataset, const P& predicate) {
  static_assert(detail::GivesBatches<T>, "filter_indices needs a dataset, or a std::shared_ptr to one");
  using B = detail::given_batch<T>;
  const std::shared_ptr<Dataset<B>> base = detail::shared_batches(std::move(dataset));
  return std::make_shared<Subset<B>>(
      base, IndexMap(detail::indices_where(base->size(), 1, [&](std::int64_t i) { return predicate(i); })),
      base->split(), base->train());
}

}  // namespace danling::inline v0::data
