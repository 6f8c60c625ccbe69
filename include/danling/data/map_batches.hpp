// Datasets and streams with a function applied to each batch.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <danling/data/detail/apply.hpp>
#include <danling/data/detail/record_source.hpp>
#include <danling/data/detail/shared_batches.hpp>
#include <danling/data/stream.hpp>

namespace danling::inline v0::data {

/// See `map_batches`. Copies share the dataset.
template <class T, detail::Maps<batch_of<T>, BatchInfo> F>
class MapBatches : public detail::ParentDataset<T> {
  using Parent = detail::ParentDataset<T>;
  using Before = batch_of<T>;

 public:
  MapBatches(std::shared_ptr<T> base, F function) : Parent(std::move(base)), function_(std::move(function)) {}

  std::int64_t size() const { return this->base_size(); }
  auto get_batch(std::span<const std::int64_t> indices, const BatchInfo& info) const {
    return detail::apply_above<Before>(below_, function_, detail::read_batch(this->base(), indices, info), info);
  }
  auto get_batch(std::span<const std::int64_t> indices) const { return get_batch(indices, BatchInfo::of(indices)); }
  std::int64_t random_layers() const { return below_ + (detail::MapsInformed<F, Before, BatchInfo> ? 1 : 0); }

 private:
  F function_;
  std::int64_t below_ = Parent::random_layers();
};

/// See `map_batches`.
template <class B, detail::Maps<B, BatchInfo> F>
class MapBatchStream final : public Stream<detail::mapped<F, B, BatchInfo>> {
  using Mapped = detail::mapped<F, B, BatchInfo>;

 public:
  MapBatchStream(std::shared_ptr<Stream<B>> base, F function)
      : base_(std::move(base)), function_(std::move(function)) {}

  std::optional<Mapped> next(std::int64_t num_samples) override {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(num_samples));
    std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
    const std::function<Mapped()> make = read(num_samples, BatchInfo::of(numbers));
    return make ? std::optional<Mapped>(make()) : std::nullopt;
  }
  std::function<Mapped()> read(std::int64_t num_samples, const BatchInfo& info) override {
    std::function<B()> make = base_->read(num_samples, info);
    if (!make) {
      return {};
    }
    return [this, make = std::move(make), info = BatchInfo(info)]() mutable {
      B batch = make();
      const auto count = static_cast<std::size_t>(batch_size(batch));
      if (count < info.size()) {  // the last batch
        std::vector<std::size_t> all(count);
        std::iota(all.begin(), all.end(), std::size_t{0});
        info = info.select(all);
      }
      return detail::apply_above<B>(below_, function_, std::move(batch), std::as_const(info));
    };
  }
  std::int64_t random_layers() const override { return below_ + (detail::MapsInformed<F, B, BatchInfo> ? 1 : 0); }
  std::int64_t skip(std::int64_t num_samples) override { return base_->skip(num_samples); }
  void reset(std::int64_t epoch) override { base_->reset(epoch); }
  State state_dict() const override { return base_->state_dict(); }
  void load_state_dict(const State& state) override { base_->load_state_dict(state); }
  LoaderDefaults loader_defaults() const override { return base_->loader_defaults(); }
  std::string split() const override { return base_->split(); }
  bool train() const override { return base_->train(); }

 private:
  std::shared_ptr<Stream<B>> base_;
  F function_;
  std::int64_t below_ = base_->random_layers();
};

/// Applies `function(batch)` or `function(batch, const BatchInfo&)` to batches when they are read: in the workers, in
/// several threads at a time. Random numbers come from `info.random(i)`, and for mixing samples from
/// `info.batch_random()`; they differ between nested maps. Accepts a dataset, a stream, or a shared pointer to one, and
/// returns an object.
template <class T, class F>
auto map_batches(T source, F function) {
  static_assert(detail::YieldsBatches<T>, "map_batches needs a dataset or a stream, or a std::shared_ptr to one");
  if constexpr (detail::YieldsBatches<T>) {
    using B = detail::given_batch<T>;
    static_assert(detail::Maps<F, B, BatchInfo>,
                  "map_batches needs a function that takes a batch, or a batch and a const BatchInfo&, and that "
                  "can be called as const");
    static_assert(BatchType<detail::mapped<F, B, BatchInfo>>, "the function of map_batches must return a batch");
    if constexpr (DatasetLike<detail::pointee_of<T>>) {
      return MapBatches<detail::pointee_of<T>, F>(detail::share(std::move(source)), std::move(function));
    } else {
      return MapBatchStream<B, F>(detail::shared_batches(std::move(source)), std::move(function));
    }
  }
}

}  // namespace danling::inline v0::data
