// Host memory that a state is copied into while training waits, and written from while it goes on.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// One block of memory, reused from copy to copy: only the first, or one of a larger state, pays for new pages.
class StagingBuffer {
 public:
  /// A copy of `state` whose tensors lie in this buffer; valid until the next call. Storages are copied whole and once:
  /// what shared one still does. Host memory is copied on all threads of LibTorch. From a device the call waits for
  /// the copies, unless `pinned`: then it only orders them behind the device's work so far; see wait().
  State stage(const State& state, bool pinned);

  /// Waits until copies from a device have arrived. From any thread.
  void wait();
  /// Orders what the current stream does next behind the copies, without waiting on the host.
  void order_current_stream();

 private:
  void reserve(std::int64_t bytes, bool pinned);

  at::Tensor memory_;
  std::vector<c10::Event> arrived_;  // one for each device
};

}  // namespace danling::inline v0
