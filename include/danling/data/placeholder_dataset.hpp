// A dataset with positions but without data, for processes that only count batches.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <danling/data/batch.hpp>
#include <danling/data/dataset.hpp>

namespace danling::inline v0::data {

/// Types that can have a number of samples without values.
template <class B>
concept HasPlaceholder = std::same_as<B, Batch> || std::same_as<B, at::Tensor>;

/// A dataset as long as another one, in the same order, that reads nothing: inputs are [N, 0]. For middle stages of a
/// pipeline, which receive their inputs from other processes.
template <HasPlaceholder B>
class PlaceholderDataset final : public Dataset<B> {
 public:
  explicit PlaceholderDataset(std::shared_ptr<Dataset<B>> like) : like_(std::move(like)) {}

  std::int64_t size() const override { return like_->size(); }
  B get_batch(std::span<const std::int64_t> indices) override {
    const at::Tensor nothing = at::empty({std::ssize(indices), 0});
    if constexpr (std::same_as<B, at::Tensor>) {
      return nothing;
    } else {
      return {.input = nothing};
    }
  }
  B read(std::span<const std::int64_t> indices, const BatchInfo& info) override {
    B out = get_batch(indices);
    if constexpr (std::same_as<B, Batch>) {
      out.info = info;
    }
    return out;
  }
  std::optional<std::string> entry_key(std::int64_t index) const override { return like_->entry_key(index); }
  std::int64_t random_layers() const override { return like_->random_layers(); }
  LoaderDefaults loader_defaults() const override { return like_->loader_defaults(); }
  std::string split() const override { return like_->split(); }
  bool train() const override { return like_->train(); }

 private:
  std::shared_ptr<Dataset<B>> like_;
};

}  // namespace danling::inline v0::data
