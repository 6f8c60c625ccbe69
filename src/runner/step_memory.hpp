// Memory of training steps: measures it, and limits it on the CPU.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace danling::inline v0::detail {

/// True when `error`, or one nested in it, reports out of memory, on a device or on the CPU.
bool is_memory_error(const std::exception& error);

/// Bytes that this process may still allocate on the CPU: the minimum of the limits of machine, control group and
/// RLIMIT_AS.
std::int64_t available_host_memory();

/// Measures the tensors of a device for its lifetime. On the CPU it counts tensors allocated since, by an allocator
/// around LibTorch's, which also enforces a limit: an allocation beyond it throws c10::OutOfMemoryError. Tensors may
/// outlive it. One object at a time; no other thread may start allocating tensors during construction or destruction.
class StepMemory {
 public:
  /// @param limit  bytes, on the CPU
  StepMemory(c10::Device device, std::optional<std::int64_t> limit);
  ~StepMemory();
  StepMemory(const StepMemory&) = delete;
  StepMemory& operator=(const StepMemory&) = delete;

  void reset_peak();
  /// Largest number of bytes since reset_peak(): on a device of all tensors, on the CPU of the counted ones.
  std::int64_t peak() const;
  /// Returns unused memory of a device to its driver.
  void release();

 private:
  c10::Device device_;
};

}  // namespace danling::inline v0::detail
