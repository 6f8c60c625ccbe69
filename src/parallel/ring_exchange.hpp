// One step around a ring: sends tensors to the next rank and receives those of the one before, beside other work.
#pragma once

#include <future>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::parallel::detail {

/// Between `start` and `finish` the group is in use, by a thread that touches host memory only. A failure is thrown by
/// `finish`. Destroyed in between, it waits.
class RingExchange {
 public:
  /// `group` outlives it.
  explicit RingExchange(const Group& group);

  /// Sends `tensors`, which nobody changes until `finish`; defined, contiguous, of the same shapes on all ranks. Waits
  /// for their device.
  void start(std::vector<at::Tensor> tensors);
  /// Returns the tensors of the rank before, on the device of the sent ones.
  std::vector<at::Tensor> finish();

 private:
  const Group& group_;
  std::vector<at::Tensor> sent_, received_;
  std::future<void> running_;
};

}  // namespace danling::inline v0::parallel::detail
