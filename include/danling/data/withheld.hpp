// A dataset's positions without its records, for processes that only count batches.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <danling/data/dataset.hpp>

namespace danling::inline v0::data {

/// As long as another dataset, in the same order, but nothing is read: batches are `B()`. For stages in the middle of a
/// pipeline, which get their inputs from other processes.
template <std::default_initializable B>
class WithheldDataset final : public Dataset<B> {
 public:
  explicit WithheldDataset(std::shared_ptr<Dataset<B>> like) : like_(std::move(like)) {}

  std::int64_t size() const override { return like_->size(); }
  B get_batch(std::span<const std::int64_t>) override { return B(); }
  B read(std::span<const std::int64_t>, const BatchInfo&) override { return B(); }
  std::optional<std::string> entry_key(std::int64_t index) const override { return like_->entry_key(index); }
  std::int64_t random_layers() const override { return like_->random_layers(); }
  LoaderDefaults loader_defaults() const override { return like_->loader_defaults(); }
  std::string split() const override { return like_->split(); }
  bool train() const override { return like_->train(); }

 private:
  std::shared_ptr<Dataset<B>> like_;
};

}  // namespace danling::inline v0::data
