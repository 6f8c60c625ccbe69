// Measures the memory that tensors allocate, for instance to compare two variants of a model.
#pragma once

#include <cstdint>
#include <memory>

namespace danling::inline v0::nn {

/// Counts the bytes that LibTorch's allocators allocate and free on this thread, and in backward passes that begin on
/// it, on all devices, from construction to destruction. Memory allocated earlier does not count; LibTorch logs a
/// warning when it is freed during the count. LibTorch's profiler cannot run at the same time.
class AllocatedBytes {
 public:
  AllocatedBytes();
  ~AllocatedBytes();
  AllocatedBytes(const AllocatedBytes&) = delete;
  AllocatedBytes& operator=(const AllocatedBytes&) = delete;

  /// Bytes allocated minus bytes freed; may be negative.
  std::int64_t current() const;
  /// The highest `current()` so far.
  std::int64_t peak() const;

 private:
  struct Scope;
  std::unique_ptr<Scope> scope_;
};

}  // namespace danling::inline v0::nn
