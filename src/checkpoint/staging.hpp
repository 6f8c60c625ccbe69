// Host memory for copies of a state: training waits only for the copy, and the save is written from it.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// One block of memory, reused between copies: only the first copy, or a larger state, allocates pages.
class StagingBuffer {
 public:
  /// Returns a copy of `state` whose tensors use this buffer; valid until the next call. Copies each storage once and
  /// whole; tensors that share one share it in the copy. Copies host memory on all threads of LibTorch. Waits for
  /// copies from a device, unless `pinned`: then only orders them after the device's work so far; see wait().
  State stage(const State& state, bool pinned);

  /// Waits until copies from a device have arrived. From any thread.
  void wait();
  /// Orders later work on the current stream after the copies, without waiting on the host.
  void order_current_stream();

 private:
  void reserve(std::int64_t bytes, bool pinned);

  at::Tensor memory_;
  std::vector<c10::Event> arrived_;  // one per device
};

}  // namespace danling::inline v0
