#include <danling/data/distributed_sampler.hpp>

#include <utility>

#include <danling/core/error.hpp>

#include <data/sampler_state.hpp>

namespace danling::inline v0::data {

DistributedSampler::DistributedSampler(std::shared_ptr<Sampler> base, DistributedSamplerOptions options)
    : base_(std::move(base)), options_(options) {
  const std::int64_t world_size = options_.world_size;
  check<ConfigError>(world_size > 0 && options_.rank >= 0 && options_.rank < world_size, "data.distributed_sampler",
                     "expected a rank in [0, world_size), got rank ", options_.rank, " of ", world_size);
  check<ConfigError>(base_ != nullptr && !base_->sharded(), "data.distributed_sampler",
                     "expected a sampler of all processes, got ", base_ == nullptr ? "none" : "the part of one");
  const std::int64_t whole = base_->size() / world_size;
  size_ = whole + (options_.drop_last || base_->size() % world_size == 0 ? 0 : 1);
}

void DistributedSampler::fill(std::int64_t position, std::span<std::int64_t> indices) const {
  for (auto& index : indices) {
    const std::int64_t of_base = (options_.rank + position++ * options_.world_size) % base_->size();
    base_->fill(of_base, {&index, 1});
  }
}

State DistributedSampler::state_dict() const {
  State state = detail::sampler_state("distributed", size());
  state["rank"] = options_.rank;
  state["world_size"] = options_.world_size;
  state["base"] = base_->state_dict();
  return state;
}

void DistributedSampler::load_state_dict(const State& state) {
  detail::check_sampler_state(state, "distributed", size());
  detail::check_same(state, "rank", options_.rank, "rank");
  detail::check_same(state, "world_size", options_.world_size, "world_size");
  base_->load_state_dict(state.at("base"));
}

}  // namespace danling::inline v0::data
