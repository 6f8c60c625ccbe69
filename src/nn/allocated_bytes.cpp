#include <danling/nn/allocated_bytes.hpp>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <unordered_map>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace danling::inline v0::nn {
namespace {

class Counter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* pointer, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    const std::lock_guard lock(mutex_);
    if (size > 0) {
      sizes_[pointer] = size;
    } else if (sizes_.erase(pointer) == 0) {
      return;  // allocated earlier
    }
    current_ += size;
    peak_ = std::max(peak_, current_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::int64_t current() const {
    const std::lock_guard lock(mutex_);
    return current_;
  }
  std::int64_t peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<void*, std::int64_t> sizes_;
  std::int64_t current_ = 0, peak_ = 0;
};

}  // namespace

struct AllocatedBytes::Scope {
  std::shared_ptr<Counter> counter = std::make_shared<Counter>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, counter};
};

AllocatedBytes::AllocatedBytes() : scope_(std::make_unique<Scope>()) {}
AllocatedBytes::~AllocatedBytes() = default;
std::int64_t AllocatedBytes::current() const { return scope_->counter->current(); }
std::int64_t AllocatedBytes::peak() const { return scope_->counter->peak(); }

}  // namespace danling::inline v0::nn
