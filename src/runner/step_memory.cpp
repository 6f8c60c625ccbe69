#include <runner/step_memory.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <mutex>
#include <new>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <danling/core/error.hpp>
#include <danling/core/quantity.hpp>

namespace danling::inline v0::detail {
namespace {

/// Counts the tensors on the CPU. Never destroyed, since tensors hold a pointer to it.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& instance() {
    static auto* allocator = new CountingAllocator;
    return *allocator;
  }

  void install(std::optional<std::int64_t> limit) {
    const std::lock_guard lock(mutex_);
    base_ = c10::GetAllocator(c10::kCPU);
    limit_ = limit.value_or(std::numeric_limits<std::int64_t>::max());
    used_ = peak_ = 0;
    ++round_;
    c10::SetAllocator(c10::kCPU, this, highest_priority);
  }
  void remove() {
    c10::SetAllocator(c10::kCPU, base_, highest_priority);
    const std::lock_guard lock(mutex_);
    limit_ = std::numeric_limits<std::int64_t>::max();  // remaining tensors may be resized
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    peak_ = used_;
  }
  std::int64_t peak() {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    const auto size = static_cast<std::int64_t>(bytes);
    {
      const std::lock_guard lock(mutex_);
      if (size > limit_ - used_) {
        TORCH_CHECK_WITH(OutOfMemoryError, false, "expected memory for ", size, " bytes, got ", limit_ - used_,
                         " of the limit of ", limit_);
      }
    }
    c10::DataPtr data = base_->allocate(bytes);
    void* const address = data.get();
    if (address == nullptr) {
      return data;  // empty tensor
    }
    const auto device = data.device();
    const std::lock_guard lock(mutex_);
    used_ += size;
    peak_ = std::max(peak_, used_);
    blocks_.insert_or_assign(address, Block{std::move(data), size, round_});
    return {address, address, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    default_copy_data(target, source, count);
  }

 private:
  struct Block {
    c10::DataPtr data;
    std::int64_t size;
    std::int64_t round;  ///< of install()
  };
  static constexpr std::uint8_t highest_priority = std::numeric_limits<std::uint8_t>::max();

  static void release(void* address) {
    CountingAllocator& self = instance();
    c10::DataPtr freed;  // destroyed without the lock
    const std::lock_guard lock(self.mutex_);
    const auto found = self.blocks_.find(address);
    if (found != self.blocks_.end()) {
      freed = std::move(found->second.data);
      self.used_ -= found->second.round == self.round_ ? found->second.size : 0;
      self.blocks_.erase(found);
    }
  }

  std::mutex mutex_;
  c10::Allocator* base_ = nullptr;
  std::int64_t limit_ = 0;
  std::int64_t used_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t round_ = 0;
  std::unordered_map<void*, Block> blocks_;
};

// Reads the first number of a file, in units of `unit`; empty if there is none, as for "max".
std::optional<std::int64_t> number_in_file(const std::string& file, std::string_view key = "", std::int64_t unit = 1) {
  std::ifstream in(file);
  std::string word;
  while (!key.empty() && in >> word && word != key) {
  }
  std::int64_t number = 0;
  return in >> number ? std::optional(number * unit) : std::nullopt;
}

std::optional<std::int64_t> left_in_control_group() {
  const auto limit = number_in_file("/sys/fs/cgroup/memory.max");
  const auto used = number_in_file("/sys/fs/cgroup/memory.current");
  return limit && used ? std::optional(*limit - *used) : std::nullopt;
}

std::optional<std::int64_t> left_of_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::nullopt;
  }
  const auto pages = number_in_file("/proc/self/statm");
  const auto used = pages.value_or(0) * static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
  return static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<std::int64_t>::max())) - used;
}

bool is_one_memory_error(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return true;
  }
  const std::string_view text = error.what();
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  return has("DefaultCPUAllocator: can't allocate memory") || has("DefaultCPUAllocator: not enough memory") ||
         has("CUDA out of memory") || has("CUDA error: out of memory") || has("CUBLAS_STATUS_ALLOC_FAILED") ||
         has("CUDNN_STATUS_ALLOC_FAILED");
}

}  // namespace

bool is_memory_error(const std::exception& error) {
  if (is_one_memory_error(error)) {
    return true;
  }
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& nested) {
    return is_memory_error(nested);
  } catch (...) {  // another type of exception
  }
  return false;
}

std::int64_t available_host_memory() {
  std::int64_t out = number_in_file("/proc/meminfo", "MemAvailable:", 1024).value_or(std::int64_t{1} << 30);
  for (const auto& left : {left_in_control_group(), left_of_address_space()}) {
    out = std::min(out, left.value_or(out));
  }
  return std::max<std::int64_t>(out, 0);
}

StepMemory::StepMemory(c10::Device device, std::optional<std::int64_t> limit) : device_(device) {
  if (device_.is_cpu()) {
    CountingAllocator::instance().install(limit);
  } else {
    reset_peak();
  }
}

StepMemory::~StepMemory() {
  if (device_.is_cpu()) {
    CountingAllocator::instance().remove();
  }
}

void StepMemory::reset_peak() {
  device_.is_cpu() ? CountingAllocator::instance().reset_peak()
                   : at::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
}

std::int64_t StepMemory::peak() const {
  if (device_.is_cpu()) {
    return CountingAllocator::instance().peak();
  }
  const auto stats = at::getDeviceAllocator(device_.type())->getDeviceStats(device_.index());
  return stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}

void StepMemory::release() {
  if (!device_.is_cpu()) {
    at::getDeviceAllocator(device_.type())->emptyCache();
  }
}

}  // namespace danling::inline v0::detail
