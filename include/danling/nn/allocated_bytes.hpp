// Counts the memory of tensors, to measure what a change of a model saves.
#pragma once

#include <cstdint>
#include <memory>

namespace danling::inline v0::nn {

/// Counts the bytes that LibTorch's allocators give out and take back on this thread and in backward passes that begin
/// on it, on all devices, from construction to destruction. Memory from before does not count; LibTorch logs a warning
/// when it is freed meanwhile. LibTorch's profiler cannot run meanwhile.
class AllocatedBytes {
 public:
  AllocatedBytes();
  ~AllocatedBytes();
  AllocatedBytes(const AllocatedBytes&) = delete;
  AllocatedBytes& operator=(const AllocatedBytes&) = delete;

  std::int64_t current() const;
  /// The highest `current()` so far.
  std::int64_t peak() const;

 private:
  struct Scope;
  std::unique_ptr<Scope> scope_;
};

}  // namespace danling::inline v0::nn
