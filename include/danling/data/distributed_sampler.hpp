// One process's share of a sampler's order, for loops without a `Loader`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <danling/data/sampler.hpp>

namespace danling::inline v0::data {

struct DistributedSamplerOptions {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  /// Drops the last samples that do not fill a round of all ranks; otherwise the first ones are repeated.
  bool drop_last = false;
};

/// Every `world_size`-th position of a sampler, starting at `rank`: like torch.utils.data.DistributedSampler if `base`
/// is a `SequentialSampler`; shuffled if it is a `RandomSampler`.
///
/// A `Loader` does not need it and rejects it together with `shard`. `shard` assigns each process a block of every
/// global batch instead, so a step has the same samples for any number of processes, and any number of them can resume.
/// With the same `base`, both visit the same samples in an epoch over all processes; `shard.padding` corresponds to
/// `drop_last: false` here. The state is that of one rank, and its position is valid for one `world_size`.
class DistributedSampler final : public Sampler {
 public:
  /// @throws ConfigError when `rank` is not in [0, world_size), or `base` is null or already sharded.
  DistributedSampler(std::shared_ptr<Sampler> base, DistributedSamplerOptions options);

  /// Equal on all ranks.
  std::int64_t size() const override { return size_; }
  void set_epoch(std::int64_t epoch) override { base_->set_epoch(epoch); }
  void fill(std::int64_t position, std::span<std::int64_t> indices) const override;
  bool repeats() const override { return base_->repeats() || size_ * options_.world_size > base_->size(); }
  bool sharded() const override { return options_.world_size > 1; }
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  std::shared_ptr<Sampler> base_;
  DistributedSamplerOptions options_;
  std::int64_t size_;
};

}  // namespace danling::inline v0::data
