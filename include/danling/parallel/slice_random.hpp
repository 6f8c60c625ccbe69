// Random numbers inside of slices, which differ over the ranks of a group, without a generator that must be saved.
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::parallel {

/// While one lives, the default generator of a device draws other numbers on each rank of `group`: for dropout on a
/// slice of a layer, or on a part of a sequence. All other operators draw from the default generators, which all ranks
/// of the group must have seeded alike, so that equal tensors have equal dropout on them.
///
/// The numbers derive from one number of the default generator of the host, and the rank. So a checkpoint with the
/// default generators resumes them, and activation recompute repeats them. A group of one process changes nothing, and
/// draws nothing. May be nested; for one thread. (Megatron-LM: the model-parallel random state)
class SliceRandom {
 public:
  /// @param device  on which the random numbers are drawn
  explicit SliceRandom(const Group& group, at::Device device = at::kCPU);
  ~SliceRandom();
  SliceRandom(const SliceRandom&) = delete;
  SliceRandom& operator=(const SliceRandom&) = delete;

 private:
  at::Generator generator_;  // of the device, while it is changed
  at::Tensor state_;         // that it had
};

}  // namespace danling::inline v0::parallel
