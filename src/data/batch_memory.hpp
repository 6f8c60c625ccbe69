// Memory for large batches, reused from one batch to the next.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::data::detail {

/// Allocates an uninitialized tensor for a batch; thread-safe. On the CPU, from 1 MiB to 32 MiB, reuses the memory of a
/// freed batch of similar size: otherwise fragmented heaps of worker threads keep several times the memory in use, and
/// memory that they return to the system must be faulted in again. Idle memory above a quarter of the memory in use is
/// returned to the system, except one block.
at::Tensor empty_batch(at::IntArrayRef sizes, const at::TensorOptions& options);

/// Memory of all large batches of the process.
struct BatchMemory {
  std::int64_t used = 0;  // in bytes
  std::int64_t idle = 0;  // in bytes
};
BatchMemory batch_memory();

}  // namespace danling::inline v0::data::detail
