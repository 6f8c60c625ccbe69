// Subsets of a dataset: selected records, and random splits by seed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/data/detail/record_source.hpp>
#include <danling/data/index_map.hpp>

namespace danling::inline v0::data {

/// Some records of a dataset, renumbered: has samples if the dataset has samples, else batches. Copies share the
/// dataset.
template <class T>
class Subset : public detail::ParentDataset<T> {
  using Parent = detail::ParentDataset<T>;

 public:
  /// `get` uncollates batches of one.
  static constexpr bool uncollates = detail::ReadsWhole<T>;

  Subset(std::shared_ptr<T> base, IndexMap indices, std::string split, bool train)
      : Parent(std::move(base)), indices_(std::move(indices)), split_(std::move(split)), train_(train) {
    indices_.check_within(this->base_size());
  }

  /// Returns the indices of these records in the dataset below.
  std::vector<std::int64_t> indices() const { return indices_.to_vector(); }

  std::int64_t size() const { return indices_.size(); }
  auto get(std::int64_t index, const SampleInfo& info) const
    requires RecordSource<T>
  {
    return detail::record_at(this->base(), indices_.at(index), info);
  }
  auto get(std::int64_t index) const
    requires RecordSource<T>
  {
    return detail::look_at(*this, index);
  }
  auto get_batch(std::span<const std::int64_t> indices, const BatchInfo& info) const
    requires DatasetLike<T>
  {
    std::array<std::int64_t, 256> few;  // most batches fit: no allocation
    std::vector<std::int64_t> many(indices.size() > few.size() ? indices.size() : 0);
    const std::span<std::int64_t> of_base(many.empty() ? few.data() : many.data(), indices.size());
    indices_.map(indices, of_base);
    return detail::read_batch(this->base(), of_base, info);
  }
  auto get_batch(std::span<const std::int64_t> indices) const
    requires DatasetLike<T>
  {
    return get_batch(indices, BatchInfo::of(indices));
  }
  State source_info(std::int64_t index) const { return Parent::source_info(indices_.at(index)); }
  std::optional<std::string> entry_key(std::int64_t index) const { return Parent::entry_key(indices_.at(index)); }
  std::string split() const { return split_; }
  bool train() const { return train_; }

 private:
  IndexMap indices_;
  std::string split_;
  bool train_;
};

/// Returns the records of `dataset` at `indices`, in this order; an index may repeat. @throws DataError for an index
/// outside
template <class T>
auto subset(T dataset, std::vector<std::int64_t> indices, std::string split = {}) {
  static_assert(detail::require_numbered<T>());
  const bool train = split == "train";
  return Subset<detail::pointee_of<T>>(detail::share(std::move(dataset)), IndexMap(std::move(indices)),
                                       std::move(split), train);
}

/// Splits a dataset into disjoint random parts: of these numbers of records, if `sizes` are integers, or of these
/// fractions, which add up to 1. The parts depend only on the seed and the size of the dataset. They have no `split()`;
/// a runner uses the split name under which it receives the part. (Torch: random_split, with its rounding.) @throws
/// DataError unless the sizes add up
template <class T>
auto random_split(T dataset, const SplitSizes& sizes, std::uint64_t seed) {
  static_assert(detail::require_numbered<T>());
  const auto base = detail::share(std::move(dataset));
  std::vector<Subset<detail::pointee_of<T>>> parts;
  for (IndexMap& records : detail::random_parts(sizes, static_cast<std::int64_t>(base->size()), seed)) {
    parts.emplace_back(base, std::move(records), std::string(), false);
  }
  return parts;
}

/// The result of `hold_out`: `rest` keeps the dataset's `split()` and `train()`; `held` has neither.
template <class T>
struct HeldOut {
  Subset<T> rest;
  Subset<T> held;
};

/// Sets `count` random records aside for validation: `auto [train, val] = hold_out(mnist(...), 200, seed)`. @throws
/// DataError unless `count` is in [0, size]
template <class T>
auto hold_out(T dataset, std::int64_t count, std::uint64_t seed) {
  static_assert(detail::require_numbered<T>());
  using D = detail::pointee_of<T>;
  const auto base = detail::share(std::move(dataset));
  const auto size = static_cast<std::int64_t>(base->size());
  danling::detail::check<DataError>(count >= 0 && count <= size, "data.split", "expected a number of records in [0, ",
                                    size, "], got ", count);
  auto parts = detail::random_parts({size - count, count}, size, seed);
  return HeldOut<D>{{base, std::move(parts[0]), detail::split_of(*base), detail::train_of(*base)},
                    {base, std::move(parts[1]), std::string(), false}};
}

}  // namespace danling::inline v0::data
