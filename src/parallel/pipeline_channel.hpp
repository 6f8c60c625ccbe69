// Tensors of micro-batches between two neighbouring stages; the sender announces shapes when they change.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::parallel::detail {

/// A tensor in a message.
struct SentTensor {
  at::Tensor tensor;
  std::int64_t place = 0;       ///< index among the outputs or inputs of the stage
  bool needs_gradient = false;  ///< the sender waits for its gradient
};

/// Shapes of the tensors in a message, and the positions of their bytes.
struct MessageLayout {
  struct Entry {
    std::int64_t place = 0;
    at::ScalarType type = at::kFloat;
    bool needs_gradient = false;
    std::vector<std::int64_t> sizes;
    std::int64_t offset = 0;
    std::int64_t bytes = 0;

    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::vector<Entry> entries;
  std::int64_t bytes = 0;  ///< a multiple of 64

  void add(std::int64_t place, at::ScalarType type, bool needs_gradient, std::vector<std::int64_t> sizes);
  std::vector<std::int64_t> packed() const;
  static MessageLayout unpacked(const std::int64_t* numbers, std::int64_t count);
};

/// Buffers in host memory by size, kept for the next step. Does not reuse a buffer that is still read.
class BufferPool {
 public:
  explicit BufferPool(bool pinned) : pinned_(pinned) {}
  at::Tensor take(std::int64_t bytes);
  void put_back(at::Tensor buffer);

 private:
  bool pinned_;
  std::vector<at::Tensor> free_;
};

/// One direction between two stages, for one micro-batch of each step. Steps repeat their shapes, so both sides know
/// them: a message is a header and the tensors, in one buffer of the length of the channel's last message. If the
/// shapes have changed, the header says so; the shapes and the tensors follow as two more messages.
class PipelineChannel {
 public:
  PipelineChannel(int peer, int tag) : peer_(peer), tag_(tag) {}

  /// Buffers and works of a message in flight.
  struct Sending {
    std::vector<at::Tensor> buffers;
    std::vector<Work> works;
  };
  /// Waits for the tensors' device, not for the receiver. @param micro_batches  number in the step, for ranks that only
  /// receive
  Sending send(const Group& group, BufferPool& pool, const std::vector<SentTensor>& tensors,
               std::int64_t micro_batches);

  struct Received {
    std::vector<SentTensor> tensors;  ///< they share the buffer, or are copies on the device
    std::int64_t micro_batches = 0;
    at::Tensor buffer;
  };
  /// Posts the receive, so that the message arrives while the caller works.
  void start_receive(const Group& group, BufferPool& pool);
  /// Posts the receive if necessary, and waits for it.
  Received receive(const Group& group, BufferPool& pool, at::Device device);

  int peer() const { return peer_; }

 private:
  int peer_;
  int tag_;
  MessageLayout layout_;
  at::Tensor pending_;
  Work pending_work_;
};

}  // namespace danling::inline v0::parallel::detail
