// Host memory into which a state is copied while training waits, and from which it is written afterwards.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// One block of memory, reused between copies: only the first copy, and one of a larger state, allocates pages.
class StagingBuffer {
 public:
  /// A copy of `state` whose tensors use this buffer; valid until the next call. Storages are copied whole and once;
  /// tensors that share one still do. Copies host memory on all threads of LibTorch. Waits for copies from a device,
  /// unless `pinned`: then only orders them behind the device's work so far; see wait().
  State stage(const State& state, bool pinned);

  /// Waits until copies from a device have arrived. From any thread.
  void wait();
  /// Orders later work on the current stream behind the copies, without waiting on the host.
  void order_current_stream();

 private:
  void reserve(std::int64_t bytes, bool pinned);

  at::Tensor memory_;
  std::vector<c10::Event> arrived_;  // one for each device
};

}  // namespace danling::inline v0
