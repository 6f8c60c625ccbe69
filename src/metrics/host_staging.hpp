// Asynchronous copies of rows from a device to the host.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace danling::inline v0::detail {

/// Two blocks of pinned memory, filled alternately: rows of one wait for the device while the other is emptied. Only
/// copies from CUDA are asynchronous; pinned memory and events are used only for CUDA.
class HostStaging {
 public:
  /// Receives rows that have arrived on the host.
  using Sink = std::function<void(const at::Tensor& rows)>;

  /// Queues a copy of `rows`, which must have the same dtype and shape in each call. When a block is full, waits for
  /// the copies of the other block, queued a block earlier, and passes that block to `sink` first.
  void add(const at::Tensor& rows, const Sink& sink);
  /// Waits for queued copies and passes them to `sink`; frees the blocks.
  void finish(const Sink& sink);

 private:
  struct Block {
    at::Tensor memory;
    std::int64_t used = 0;
    std::optional<c10::Event> arrived;
    std::optional<c10::Stream> stream;
  };
  static void empty(Block& block, const Sink& sink);

  std::array<Block, 2> blocks_;
  std::size_t current_ = 0;
};

}  // namespace danling::inline v0::detail
