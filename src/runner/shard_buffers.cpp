#include <runner/shard_buffers.hpp>

#include <set>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>

namespace danling::inline v0::detail {
namespace {

/// The number that changes are added to. It is zero if the buffer was not finite: the change is then the new value.
at::Tensor base_of(const at::Tensor& before) {
  const at::Tensor wide = before.to(at::kDouble);
  return at::where(at::isfinite(wide), wide, 0.0);
}

/// The change of a buffer by a shard. Integers are subtracted as integers, since double is exact only to 2^53.
at::Tensor change_of(const at::Tensor& after, const at::Tensor& before) {
  return before.is_floating_point() ? after.to(at::kDouble).sub(base_of(before))
                                    : after.to(at::kLong).sub(before.to(at::kLong)).to(at::kDouble);
}

/// The buffer plus the mean change, rounded for integers. A buffer that no shard changes keeps its bits.
at::Tensor changed_by(const at::Tensor& mean, const at::Tensor& before) {
  if (!before.is_floating_point()) {
    return before.to(at::kLong).add(mean.round().to(at::kLong));
  }
  const at::Tensor unchanged = mean.eq(0).logical_and(at::isfinite(before));
  return at::where(unchanged, before.to(at::kDouble), base_of(before).add(mean));
}

at::Tensor one_shard(at::Device device) { return at::ones({}, at::TensorOptions().dtype(at::kDouble).device(device)); }

}  // namespace

ShardBuffers::ShardBuffers(const ModelHandle& model, const Group& group, const TreeSum::Options& options) {
  std::set<std::string, std::less<>> params;
  for (const auto& [name, tensor] : model.named_parameters()) {
    params.insert(name);
  }
  for (const auto& [name, tensor] : model.named_state()) {
    if (!params.contains(name)) {
      buffers_.push_back(tensor.is_complex() ? at::view_as_real(tensor) : tensor);
    }
  }
  if (buffers_.empty()) {
    return;
  }
  std::vector<at::Tensor> like;
  for (const at::Tensor& buffer : buffers_) {
    like.push_back(buffer.to(at::kDouble));
  }
  like.push_back(one_shard(buffers_.front().device()));  // counts shards
  sums_ = std::make_unique<TreeSum>(like, group, options);
}

void ShardBuffers::keep() {
  before_.clear();
  for (const at::Tensor& buffer : buffers_) {
    before_.push_back(buffer.clone());
  }
}

// Takes the shard's changes and restores the buffers for the next shard. The last number counts shards.
void ShardBuffers::push() {
  if (sums_ == nullptr) {
    return;
  }
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> change;
  for (std::size_t index = 0; index < buffers_.size(); ++index) {
    change.push_back(change_of(buffers_[index], before_[index]));
    buffers_[index].copy_(before_[index]);
  }
  change.push_back(one_shard(buffers_.front().device()));
  sums_->push(std::move(change));
}

void ShardBuffers::combine() {
  if (sums_ == nullptr) {
    return;
  }
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> sums = sums_->finish(/*any_lacking=*/false);
  for (std::size_t index = 0; index < buffers_.size(); ++index) {
    buffers_[index].copy_(changed_by(sums[index].div(sums.back()), before_[index]));
  }
}

}  // namespace danling::inline v0::detail
