// A dataset of concatenated datasets: see `concat`.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <danling/data/detail/offsets.hpp>
#include <danling/data/detail/record_source.hpp>
#include <danling/data/merge.hpp>

namespace danling::inline v0::data {

namespace detail {
/// Placeholder for a missing sample or batch type.
struct None {};

/// A type-erased dataset of samples S, which it collates to batches C, or of batches B.
template <class S, class B, class C>
class AnyDataset {
 public:
  virtual ~AnyDataset() = default;
  virtual std::int64_t size() const = 0;
  virtual S get(std::int64_t index, const SampleInfo& info) const = 0;
  virtual B read(std::span<const std::int64_t> indices, const BatchInfo& info) const = 0;
  virtual C collate(std::vector<S> samples) const = 0;
  virtual State source_info(std::int64_t index) const = 0;
  virtual std::optional<std::string> entry_key(std::int64_t index) const = 0;
  virtual std::int64_t random_layers() const = 0;
  virtual LoaderDefaults loader_defaults() const = 0;
  virtual std::string split() const = 0;
  virtual bool train() const = 0;
};

template <class T, class S, class B, class C>
class DatasetPart final : public AnyDataset<S, B, C>, ParentDataset<T> {
  using Parent = ParentDataset<T>;

 public:
  explicit DatasetPart(std::shared_ptr<T> base) : Parent(std::move(base)) {}
  std::int64_t size() const override { return this->base_size(); }
  S get([[maybe_unused]] std::int64_t index, [[maybe_unused]] const SampleInfo& info) const override {
    if constexpr (std::same_as<S, None>) {
      return {};
    } else {
      return record_at(this->base(), index, info);
    }
  }
  B read([[maybe_unused]] std::span<const std::int64_t> indices,
         [[maybe_unused]] const BatchInfo& info) const override {
    if constexpr (std::same_as<B, None>) {
      return {};
    } else {
      return read_batch(this->base(), indices, info);
    }
  }
  C collate([[maybe_unused]] std::vector<S> samples) const override {
    if constexpr (std::same_as<C, None>) {
      return {};
    } else {
      return collate_with(this->base(), std::move(samples));
    }
  }
  State source_info(std::int64_t index) const override { return Parent::source_info(index); }
  std::optional<std::string> entry_key(std::int64_t index) const override { return Parent::entry_key(index); }
  std::int64_t random_layers() const override { return Parent::random_layers(); }
  LoaderDefaults loader_defaults() const override { return Parent::loader_defaults(); }
  std::string split() const override { return Parent::split(); }
  bool train() const override { return Parent::train(); }
};

/// The common type, or None.
template <class... T>
struct Common {
  using type = None;
};
template <class First, std::same_as<First>... Rest>
struct Common<First, Rest...> {
  using type = First;
};
template <class... D>
struct CommonSamples : Common<> {};
template <class... D>
  requires(RecordSource<D> && ...)
struct CommonSamples<D...> : Common<record_of<D>...> {};
template <class... D>
struct CommonBatches : Common<> {};
template <class... D>
  requires(DatasetLike<D> && ...)
struct CommonBatches<D...> : Common<batch_of<D>...> {};
}  // namespace detail

/// See `concat`: samples S (or None) and batches B. If `whole`, merges batches of the parts; otherwise collates samples
/// as the first part does.
template <class S, class B, bool whole>
class ConcatDataset {
  static constexpr bool collates = !whole && !std::same_as<B, detail::None>;
  static constexpr bool has_samples = !std::same_as<S, detail::None>;
  using Batches = std::conditional_t<whole, B, detail::None>;
  using Collated = std::conditional_t<collates, B, detail::None>;

 public:
  using Part = std::shared_ptr<const detail::AnyDataset<S, Batches, Collated>>;
  static constexpr bool uncollates = whole;

  template <class T>
  static Part part(T dataset) {
    using D = detail::pointee_of<T>;
    return std::make_shared<detail::DatasetPart<D, S, Batches, Collated>>(detail::share(std::move(dataset)));
  }

  /// @throws DataError without parts.
  explicit ConcatDataset(std::vector<Part> parts) : parts_(std::move(parts)), offsets_(detail::offsets_of(parts_)) {}

  std::int64_t size() const { return offsets_.size(); }
  S get(std::int64_t index, const SampleInfo& info) const
    requires has_samples
  {
    const auto [part, own] = offsets_[index];
    return parts_[part]->get(own, info);
  }
  S get(std::int64_t index) const
    requires has_samples
  {
    return detail::look_at(*this, index);
  }
  B collate(std::vector<S> samples) const
    requires collates
  {
    return parts_.front()->collate(std::move(samples));
  }
  /// Reads a batch from each part that has some of its records, and merges them.
  B get_batch(std::span<const std::int64_t> indices, const BatchInfo& info) const
    requires whole
  {
    const auto shares = offsets_.shares(indices);
    if (shares.size() == 1) {
      return parts_[shares.front().part]->read(shares.front().indices, info);
    }
    std::vector<B> batches;
    std::vector<std::int64_t> order(indices.size());
    std::int64_t at = 0;
    for (const auto& share : shares) {
      batches.push_back(parts_[share.part]->read(share.indices, info.select(share.samples)));
      for (const std::size_t sample : share.samples) {
        order[sample] = at++;
      }
    }
    return merge_batches(std::move(batches), order);
  }
  B get_batch(std::span<const std::int64_t> indices) const
    requires whole
  {
    return get_batch(indices, BatchInfo::of(indices));
  }
  State source_info(std::int64_t index) const {
    const auto [part, own] = offsets_[index];
    return parts_[part]->source_info(own);
  }
  std::optional<std::string> entry_key(std::int64_t index) const {
    const auto [part, own] = offsets_[index];
    return parts_[part]->entry_key(own);
  }
  /// Returns the maximum over the parts.
  std::int64_t random_layers() const { return detail::most_random_layers(parts_); }
  /// Returns the defaults of the first part.
  LoaderDefaults loader_defaults() const { return parts_.front()->loader_defaults(); }
  std::string split() const { return detail::split_of_all(parts_); }
  bool train() const { return detail::all_train(parts_); }

 private:
  std::vector<Part> parts_;
  detail::Offsets offsets_;
};

namespace detail {
template <class... D>
struct JoinedOf {
  using Samples = typename CommonSamples<D...>::type;
  using Batches = typename CommonBatches<D...>::type;
  /// Gathering tensor rows is faster than stacking samples; stacking samples is faster than merging batches.
  static constexpr bool merges =
      Mergeable<Batches> && ((ReadsWhole<D> || ...) || !(SampleSource<D> && ...) || std::same_as<Samples, None>);
  static constexpr bool collates = (SampleSource<D> && ...) && !std::same_as<Samples, None>;
  static constexpr bool fits = merges || !std::same_as<Samples, None>;
  using type = ConcatDataset<Samples, std::conditional_t<merges || collates, Batches, None>, merges>;
};
}  // namespace detail

}  // namespace danling::inline v0::data
