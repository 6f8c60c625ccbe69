// Memory for large batches, which goes from one batch to the next.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::data::detail {

/// A tensor for a batch, not initialised. On the CPU, from 1 MiB to 32 MiB, its memory is that of a batch that is
/// gone, where one of about this size is: the heaps of worker threads, cut into pieces by samples that come and go
/// between, keep several times what is in use, and what they give back to the system is faulted in again. Memory that
/// is idle goes back to the system above a quarter of what is in use, but for one block. In any thread.
at::Tensor empty_batch(at::IntArrayRef sizes, const at::TensorOptions& options);

/// Of all large batches of the process.
struct BatchMemory {
  std::int64_t used = 0;  // bytes
  std::int64_t idle = 0;  // bytes
};
BatchMemory batch_memory();

}  // namespace danling::inline v0::data::detail
