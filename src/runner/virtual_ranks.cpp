#include "runner/virtual_ranks.hpp"

#include <set>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>

#include <danling/core/error.hpp>

#include "distributed/pending.hpp"
#include "runner/data_parallel_layers.hpp"
#include "runner/same_model.hpp"

namespace danling::inline v0::detail {
namespace {

std::vector<Subtree> subtrees(std::int64_t processes, std::int64_t virtual_ranks) {
  check<ConfigError>(processes <= virtual_ranks, "runner.init_distributed", "expected at most ", virtual_ranks,
                     " processes with parallel.virtual_ranks: ", virtual_ranks, ", got ", processes,
                     "; start fewer, or set more virtual ranks");
  return subtrees_of_ranks(processes, virtual_ranks);
}

/// The number to which changes are added. It is zero where the buffer was not finite: the change is then the new value.
at::Tensor base_of(const at::Tensor& before) {
  const at::Tensor wide = before.to(at::kDouble);
  return at::where(at::isfinite(wide), wide, 0.0);
}

/// The difference that a shard has made to a buffer. Integers are subtracted as such: double is exact to 2^53 only.
at::Tensor change_of(const at::Tensor& after, const at::Tensor& before) {
  return before.is_floating_point() ? after.to(at::kDouble).sub(base_of(before))
                                    : after.to(at::kLong).sub(before.to(at::kLong)).to(at::kDouble);
}

/// The buffer with a mean change; of integers rounded. One that no shard changes keeps its bits.
at::Tensor changed_by(const at::Tensor& mean, const at::Tensor& before) {
  if (!before.is_floating_point()) {
    return before.to(at::kLong).add(mean.round().to(at::kLong));
  }
  const at::Tensor unchanged = mean.eq(0).logical_and(at::isfinite(before));
  return at::where(unchanged, before.to(at::kDouble), base_of(before).add(mean));
}

}  // namespace

VirtualRanks::VirtualRanks(Group group, std::int64_t virtual_ranks, const DdpConfig& ddp,
                           std::chrono::milliseconds timeout)
    : Parallelism(std::move(group)),
      ranks_(subtrees(this->group().size(), virtual_ranks)),
      shared_memory_(ddp.shared_memory),
      timeout_(timeout) {}

AxisPlace VirtualRanks::data_share() const {
  const Subtree& own = ranks_[static_cast<std::size_t>(group().rank())];
  return {.rank = own.begin, .size = ranks_.back().end, .parts = own.size()};
}

TreeSum::Options VirtualRanks::options() const {
  return {.ranks = ranks_, .shared_memory = shared_memory_, .timeout = timeout_};
}

// Models have the same seed everywhere, but a program may have drawn from elsewhere.
void VirtualRanks::prepare(ModelHandle& model, at::Device device) {
  refuse_synced_layers(model, "parallel.virtual_ranks",
                       "shards are computed one after another, and its statistics would need all of them at once; use "
                       "BatchNorm, whose statistics are those of a shard, or unset parallel.virtual_ranks");
  Parallelism::prepare(model, device);
  make_same(group(), model);
  buffers_.clear();
  std::set<std::string, std::less<>> params;
  for (const auto& [name, tensor] : model.named_parameters()) {
    params.insert(name);
  }
  for (const auto& [name, tensor] : model.named_state()) {
    if (!params.contains(name)) {
      buffers_.push_back(tensor.is_complex() ? at::view_as_real(tensor) : tensor);
    }
  }
  std::vector<at::Tensor> like;
  for (const at::Tensor& buffer : buffers_) {
    like.push_back(buffer.to(at::kDouble));
  }
  like.push_back(at::ones({}, at::TensorOptions().dtype(at::kDouble).device(device)));  // counts shards
  buffer_sums_ = buffers_.empty() ? nullptr : std::make_unique<TreeSum>(like, group(), options());
}

// Several models are refused.
void VirtualRanks::prepare_optimizers(const std::vector<optim::Optimizer*>& optimizers) {
  std::vector<at::Tensor> params;
  for (const auto& param_group : optimizers.front()->param_groups()) {
    params.insert(params.end(), param_group.params.begin(), param_group.params.end());
  }
  gradients_ = std::make_unique<TreeSum>(params, group(), options());
}

void VirtualRanks::begin_step(const WindowPlace& place) {
  if (place.index == 0) {
    before_.clear();
    for (const at::Tensor& buffer : buffers_) {
      before_.push_back(buffer.clone());
    }
  }
}

StepPacket VirtualRanks::agree(const StepPacket& mine) {
  StepPacket packet = mine;
  packet.missing = gradients_ != nullptr && (gradients_->missing_shards() > 0 || gradients_->lacks_any());
  const StepPacket all = Parallelism::agree(packet);
  any_missing_ = all.missing;
  return all;
}

void VirtualRanks::end_shard(optim::Optimizer& optimizer) {
  std::vector<at::Tensor> shard;
  for (const auto& param_group : optimizer.param_groups()) {
    for (const at::Tensor& param : param_group.params) {
      shard.push_back(std::exchange(param.mutable_grad(), at::Tensor()));
      check<StateError>(!shard.back().defined() || shard.back().layout() == at::kStrided, "runner.backward",
                        "expected dense gradients with parallel.virtual_ranks, got a sparse one of shape [",
                        join(param.sizes()), "]; create the embedding with sparse(false)");
    }
  }
  gradients_->push(std::move(shard));
  if (buffer_sums_ != nullptr) {
    push_buffers();
  }
}

// What the shard has added to the buffers; each shard begins with those of before the step. The last number counts.
void VirtualRanks::push_buffers() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> change;
  for (std::size_t index = 0; index < buffers_.size(); ++index) {
    change.push_back(change_of(buffers_[index], before_[index]));
    buffers_[index].copy_(before_[index]);
  }
  change.push_back(at::ones({}, at::TensorOptions().dtype(at::kDouble).device(buffers_.front().device())));
  buffer_sums_->push(std::move(change));
}

void VirtualRanks::reduce_gradients(optim::Optimizer& optimizer) {
  const Wait wait(*this);
  const PendingScope pending("the sum of gradients");
  const std::vector<at::Tensor> sums = gradients_->finish(any_missing_);
  std::size_t index = 0;
  for (const auto& param_group : optimizer.param_groups()) {
    for (const at::Tensor& param : param_group.params) {
      const at::Tensor& sum = sums[index++];
      param.mutable_grad() = sum.defined() ? sum.to(param.scalar_type()) : at::Tensor();
    }
  }
  if (buffer_sums_ != nullptr) {
    combine_buffers();
  }
}

// The mean over the shards of the step.
void VirtualRanks::combine_buffers() {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> sums = buffer_sums_->finish(/*any_lacking=*/false);
  for (std::size_t index = 0; index < buffers_.size(); ++index) {
    buffers_[index].copy_(changed_by(sums[index].div(sums.back()), before_[index]));
  }
}

void VirtualRanks::drop_gradients(optim::Optimizer& optimizer) {
  if (gradients_ != nullptr) {
    gradients_->drop();
  }
  if (buffer_sums_ != nullptr) {
    buffer_sums_->drop();
  }
  Parallelism::drop_gradients(optimizer);
}

void VirtualRanks::set_timeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  for (const auto& sum : {gradients_.get(), buffer_sums_.get()}) {
    if (sum != nullptr) {
      sum->set_timeout(timeout);
    }
  }
  Parallelism::set_timeout(timeout);
}

void VirtualRanks::abort(std::string_view words) {
  for (const auto& sum : {gradients_.get(), buffer_sums_.get()}) {
    if (sum != nullptr) {
      sum->abort(words);
    }
  }
  Parallelism::abort(words);
}

}  // namespace danling::inline v0::detail
