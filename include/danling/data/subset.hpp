// Parts of a dataset: chosen records, and splits that depend on a seed only.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/data/dataset.hpp>
#include <danling/data/dataset_like.hpp>
#include <danling/data/permutation.hpp>

namespace danling::inline v0::data {

/// Which records of a dataset a subset has: a list, or a range of a shuffled order (constant memory).
class IndexMap {
 public:
  explicit IndexMap(std::vector<std::int64_t> indices)
      : size_(static_cast<std::int64_t>(indices.size())), list_(std::move(indices)) {}
  IndexMap(Permutation order, std::int64_t begin, std::int64_t size) : size_(size), begin_(begin), order_(order) {}

  std::int64_t size() const { return size_; }
  std::int64_t operator[](std::int64_t i) const {
    return order_ ? (*order_)(begin_ + i) : list_[static_cast<std::size_t>(i)];
  }
  /// @throws DataError when an index of the list is not in [0, size of the dataset).
  void check_within(std::int64_t dataset_size) const;

 private:
  std::int64_t size_;
  std::int64_t begin_ = 0;
  std::vector<std::int64_t> list_;
  std::optional<Permutation> order_;
};

/// Some records of `base`, numbered anew.
template <class B>
class Subset final : public Dataset<B> {
 public:
  Subset(std::shared_ptr<Dataset<B>> base, IndexMap indices, std::string split, bool train)
      : base_(std::move(base)), indices_(std::move(indices)), split_(std::move(split)), train_(train) {
    indices_.check_within(base_->size());
  }

  std::int64_t size() const override { return indices_.size(); }
  B get_batch(std::span<const std::int64_t> indices) override {
    return with_base(indices, [&](std::span<const std::int64_t> of_base) { return base_->get_batch(of_base); });
  }
  B read(std::span<const std::int64_t> indices, const BatchInfo& info) override {
    return with_base(indices, [&](std::span<const std::int64_t> of_base) { return base_->read(of_base, info); });
  }
  State source_info(std::int64_t index) const override { return base_->source_info(indices_[checked(index)]); }
  std::optional<std::string> entry_key(std::int64_t index) const override {
    return base_->entry_key(indices_[checked(index)]);
  }
  std::int64_t random_layers() const override { return base_->random_layers(); }
  LoaderDefaults loader_defaults() const override { return base_->loader_defaults(); }
  std::string split() const override { return split_; }
  bool train() const override { return train_; }

 private:
  template <class Read>
  B with_base(std::span<const std::int64_t> indices, const Read& read) const {
    std::array<std::int64_t, 256> few;  // most batches fit: no allocation
    std::vector<std::int64_t> many(indices.size() > few.size() ? indices.size() : 0);
    const std::span<std::int64_t> of_base(many.empty() ? few.data() : many.data(), indices.size());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      of_base[i] = indices_[checked(indices[i])];
    }
    return read(of_base);
  }

  std::int64_t checked(std::int64_t index) const {
    check<DataError>(index >= 0 && index < size(), "data.subset", "expected an index in [0, ", size(), ")", ", got ",
                     index);
    return index;
  }

  std::shared_ptr<Dataset<B>> base_;
  IndexMap indices_;
  std::string split_;
  bool train_;
};

namespace detail {
/// Numbers of records from fractions: rounded down, what is left goes to the first parts, one each.
std::vector<std::int64_t> counts_of(std::span<const double> fractions, std::int64_t size);
void check_counts(std::span<const std::int64_t> counts, std::int64_t size);
}  // namespace detail

/// The records of `dataset` at `indices`, in this order; an index may repeat.
template <class D>
auto subset(std::shared_ptr<D> dataset, std::vector<std::int64_t> indices, std::string split = {}) {
  using B = batch_of<D>;
  const bool train = split == "train";
  return std::make_shared<Subset<B>>(std::move(dataset), IndexMap(std::move(indices)), std::move(split), train);
}

/// Disjoint random parts, the same for the same seed and size of the dataset: with `lengths` records each, where they
/// are integers, or with these fractions of all; fractions that add up to 1 leave no record out. Records left over
/// belong to no part. The first part keeps the dataset's `split()` and `train()`; the others have no split. (Torch:
/// random_split, with its rounding.)
template <class D, class N>
requires std::integral<N> || std::floating_point<N>
auto random_split(std::shared_ptr<D> dataset, const std::vector<N>& lengths, std::uint64_t seed) {
  using B = batch_of<D>;
  std::vector<std::int64_t> counts;
  if constexpr (std::floating_point<N>) {
    counts = detail::counts_of(std::vector<double>(lengths.begin(), lengths.end()), dataset->size());
  } else {
    counts.assign(lengths.begin(), lengths.end());
  }
  detail::check_counts(counts, dataset->size());
  const Permutation order(dataset->size(), order_key(seed, 0, "danling.data.split"));
  std::vector<std::shared_ptr<Dataset<B>>> parts;
  std::int64_t begin = 0;
  for (const std::int64_t count : counts) {
    const bool first = parts.empty();
    parts.push_back(std::make_shared<Subset<B>>(dataset, IndexMap(order, begin, count),
                                                first ? dataset->split() : std::string(), first && dataset->train()));
    begin += count;
  }
  return parts;
}

template <class D, class N>
requires std::integral<N> || std::floating_point<N>
auto random_split(std::shared_ptr<D> dataset, std::initializer_list<N> lengths, std::uint64_t seed) {
  return random_split(std::move(dataset), std::vector<N>(lengths), seed);
}

/// What `hold_out` gives: `rest` keeps the dataset's `split()`, `held` has none.
template <class B>
struct HeldOut {
  std::shared_ptr<Dataset<B>> rest;
  std::shared_ptr<Dataset<B>> held;
};

/// Sets `count` random records aside, for validation: `auto [train, val] = hold_out(mnist(...), 200, seed)`.
template <class D>
auto hold_out(std::shared_ptr<D> dataset, std::int64_t count, std::uint64_t seed) {
  detail::check_counts({&count, 1}, dataset->size());
  auto parts = random_split(dataset, {dataset->size() - count, count}, seed);
  return HeldOut<batch_of<D>>{std::move(parts[0]), std::move(parts[1])};
}

}  // namespace danling::inline v0::data
