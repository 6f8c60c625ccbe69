// Random numbers that differ between the ranks of a group, without an additional generator to save.
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::parallel {

/// During its lifetime the default generator of a device draws different numbers on each rank of `group`: for dropout
/// on a slice of a layer or a part of a sequence. All other operators draw from the default generators, which must have
/// the same seed on all ranks of the group, so that equal tensors get equal dropout on all ranks.
///
/// The numbers derive from one draw of the host's default generator and the rank: a checkpoint of the default
/// generators resumes them, and activation recompute repeats them. In a group of one process it changes and draws
/// nothing. May be nested. Not thread-safe. (Megatron-LM: the model-parallel random state)
class RankRNGGuard {
 public:
  /// @param device  device on which the random numbers are drawn
  explicit RankRNGGuard(const Group& group, at::Device device = at::kCPU);
  ~RankRNGGuard();
  RankRNGGuard(const RankRNGGuard&) = delete;
  RankRNGGuard& operator=(const RankRNGGuard&) = delete;

 private:
  at::Generator generator_;  // generator of the device, while it is changed
  at::Tensor state_;         // its previous state
};

}  // namespace danling::inline v0::parallel
