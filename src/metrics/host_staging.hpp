// Copies of rows from a device to the host, behind its work.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace danling::inline v0::detail {

/// Two blocks of pinned memory, filled in turn: rows wait in one for the device, while the other is emptied. Only
/// CUDA's copies do not wait; pinned memory and events are used there alone.
class HostStaging {
 public:
  /// Takes rows that have arrived on the host.
  using Sink = std::function<void(const at::Tensor& rows)>;

  /// Queues a copy of `rows`, alike in dtype and shape from call to call. When a block is full, the other one goes to
  /// `sink` first: its copies were queued a block ago, and are waited for.
  void add(const at::Tensor& rows, const Sink& sink);
  /// Waits for what is queued and gives it to `sink`; frees the blocks.
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
