// One step around a ring, in the background: sends tensors to the next rank and receives those of the previous one.
#pragma once

#include <future>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::parallel::detail {

/// Between `start` and `finish` a thread uses the group; it accesses only host memory. `finish` throws its failure. The
/// destructor waits for it.
class RingExchange {
 public:
  /// `group` must outlive it.
  explicit RingExchange(const Group& group);

  /// Sends `tensors`, which must not change until `finish`: defined, contiguous, of the same shapes on all ranks. Waits
  /// for their device.
  void start(std::vector<at::Tensor> tensors);
  /// Returns the tensors of the previous rank, on the device of the sent ones.
  std::vector<at::Tensor> finish();

 private:
  const Group& group_;
  std::vector<at::Tensor> sent_, received_;
  std::future<void> running_;
};

}  // namespace danling::inline v0::parallel::detail
