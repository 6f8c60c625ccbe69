// Counts the bytes of host tensors that a thread of a test has allocated, now and at most.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <thread>
#include <unordered_map>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace danling_test {

/// Counts host tensors that one thread allocates, whichever thread frees them: a backend frees its tensors in its own
/// threads.
class CountingAllocator final : public c10::Allocator {
 public:
  /// Replaces the host's allocator until the process ends.
  static CountingAllocator& install() {
    instance() = new CountingAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(instance(), 255);  // above that of recorded steps, which other tests leave installed
    return *instance();
  }

  c10::DataPtr allocate(std::size_t size) override {
    void* const memory = base_->raw_allocate(size);
    if (std::this_thread::get_id() == thread_ && memory != nullptr) {
      const std::lock_guard lock(mutex_);
      sizes_[memory] = static_cast<std::int64_t>(size);
      live += static_cast<std::int64_t>(size);
      peak = std::max(peak, live);
    }
    return {memory, memory, &release, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t count) const override { base_->copy_data(to, from, count); }

  std::int64_t live = 0, peak = 0;

 private:
  explicit CountingAllocator(c10::Allocator* base) : base_(base), thread_(std::this_thread::get_id()) {}
  static CountingAllocator*& instance() {
    static CountingAllocator* one = nullptr;
    return one;
  }
  static void release(void* memory) {
    CountingAllocator& own = *instance();
    {
      const std::lock_guard lock(own.mutex_);
      if (const auto known = own.sizes_.find(memory); known != own.sizes_.end()) {
        own.live -= known->second;
        own.sizes_.erase(known);
      }
    }
    own.base_->raw_deallocate(memory);
  }

  c10::Allocator* base_;
  std::thread::id thread_;
  std::mutex mutex_;
  std::unordered_map<void*, std::int64_t> sizes_;
};

}  // namespace danling_test
