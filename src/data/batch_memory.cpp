#include <data/batch_memory.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <new>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>

namespace danling::inline v0::data::detail {

namespace {

constexpr std::size_t least = std::size_t{1} << 20;
constexpr std::size_t most = std::size_t{32} << 20;  // glibc maps larger blocks itself and unmaps them
constexpr std::size_t page = std::size_t{1} << 16;

class Recycler final : public c10::Allocator {
 public:
  // Never destroyed: tensors may outlive static objects.
  static Recycler& instance() {
    static auto* const recycler = new Recycler();
    return *recycler;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    auto block = std::make_unique<Block>();
    {
      const std::lock_guard lock(mutex_);
      // The smallest block that is large enough, at most one eighth too large.
      auto best = idle_.end();
      for (auto at = idle_.begin(); at != idle_.end(); ++at) {
        if (at->size >= bytes && at->size - bytes <= bytes / 8 && (best == idle_.end() || at->size < best->size)) {
          best = at;
        }
      }
      if (best != idle_.end()) {
        *block = *best;
        idle_.erase(best);
        idle_bytes_ -= block->size;
      }
    }
    if (block->data == nullptr) {
      block->size = (bytes + page - 1) / page * page;
      block->data = mmap(nullptr, block->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (block->data == MAP_FAILED) {
        throw std::bad_alloc();
      }
    }
    {
      const std::lock_guard lock(mutex_);
      used_bytes_ += block->size;
    }
    void* const data = block->data;
    return {data, block.release(), &free, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  BatchMemory memory() {
    const std::lock_guard lock(mutex_);
    return {static_cast<std::int64_t>(used_bytes_), static_cast<std::int64_t>(idle_bytes_)};
  }

 private:
  struct Block {
    void* data = nullptr;
    std::size_t size = 0;
  };

  static void free(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    instance().put_back(*block);
  }
  void put_back(const Block& block) {
    std::deque<Block> leaving;
    {
      const std::lock_guard lock(mutex_);
      used_bytes_ -= block.size;
      idle_.push_back(block);
      idle_bytes_ += block.size;
      while (idle_.size() > 1 && idle_bytes_ > used_bytes_ / 4) {
        idle_bytes_ -= idle_.front().size;
        leaving.push_back(idle_.front());
        idle_.pop_front();
      }
    }
    for (const Block& old : leaving) {
      munmap(old.data, old.size);
    }
  }

  std::mutex mutex_;
  std::deque<Block> idle_;  // the most recently freed block is last
  std::size_t idle_bytes_ = 0;
  std::size_t used_bytes_ = 0;
};

}  // namespace

at::Tensor empty_batch(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const std::size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, options.dtype().itemsize());
  if (!options.device().is_cpu() || options.pinned_memory() || options.layout() != at::kStrided || bytes < least ||
      bytes >= most) {
    return at::empty(sizes, options);
  }
  return at::detail::empty_generic(sizes, &Recycler::instance(), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                   c10::typeMetaToScalarType(options.dtype()), std::nullopt);
}

BatchMemory batch_memory() { return Recycler::instance().memory(); }

}  // namespace danling::inline v0::data::detail
