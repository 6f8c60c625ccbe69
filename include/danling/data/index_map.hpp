// Indices of the records in a subset of a dataset.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <danling/data/permutation.hpp>

namespace danling::inline v0::data {

/// Indices of the records in a subset: a list, or a range of a shuffled order (constant memory). Copies share the list.
class IndexMap {
 public:
  explicit IndexMap(std::vector<std::int64_t> indices);
  IndexMap(Permutation order, std::int64_t begin, std::int64_t size) : size_(size), begin_(begin), order_(order) {}

  std::int64_t size() const { return size_; }
  /// Returns the index of record `i`, without a check.
  std::int64_t operator[](std::int64_t i) const {
    return order_ ? (*order_)(begin_ + i) : (*list_)[static_cast<std::size_t>(i)];
  }
  /// Returns all indices.
  std::vector<std::int64_t> to_vector() const;
  /// Returns the index of record `i` of the subset. @throws DataError when `i` is not in [0, size())
  std::int64_t at(std::int64_t i) const;
  /// Writes the index of each of these records to `to`, of the same length. @throws DataError as at()
  void map(std::span<const std::int64_t> indices, std::span<std::int64_t> to) const;
  /// @throws DataError when an index of the list is not in [0, size of the dataset).
  void check_within(std::int64_t dataset_size) const;

 private:
  std::int64_t size_;
  std::int64_t begin_ = 0;
  std::shared_ptr<const std::vector<std::int64_t>> list_;
  std::optional<Permutation> order_;
};

/// Sizes of the parts of a dataset, as numbers of records or as fractions.
class SplitSizes {
 public:
  struct Size {
    template <class N>
      requires std::integral<N> || std::floating_point<N>
    Size(N number)  // NOLINT(google-explicit-constructor)
        : count(static_cast<std::int64_t>(number)),
          fraction(static_cast<double>(number)),
          is_fraction(std::floating_point<N>) {}
    std::int64_t count;
    double fraction;
    bool is_fraction;
  };

  SplitSizes(std::initializer_list<Size> sizes) : sizes_(sizes) {}
  template <class N>
    requires std::integral<N> || std::floating_point<N>
  SplitSizes(const std::vector<N>& sizes)  // NOLINT(google-explicit-constructor)
      : sizes_(sizes.begin(), sizes.end()) {}

  /// Returns the number of records in each part of a dataset of `size`. Rounds fractions down and adds the remaining
  /// records to the first parts, one each.
  /// @throws DataError unless they add up to all records.
  std::vector<std::int64_t> counts(std::int64_t size) const;

 private:
  std::vector<Size> sizes_;
};

namespace detail {
/// Returns ranges of `sizes` in the shuffled order of (seed, size of the dataset).
std::vector<IndexMap> random_parts(const SplitSizes& sizes, std::int64_t dataset_size, std::uint64_t seed);
}  // namespace detail

}  // namespace danling::inline v0::data
