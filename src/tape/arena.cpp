#include <tape/arena.hpp>

#ifdef __GLIBC__
#include <malloc.h>
#if __GLIBC_PREREQ(2, 33)  // mallinfo2
#define DANLING_TRIMS
#endif
#endif

#include <algorithm>
#include <numeric>

namespace danling::inline v0::tape {
namespace {

constexpr std::size_t alignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

#ifdef DANLING_TRIMS
constexpr std::size_t much = 4 * 1024 * 1024;
/// Returns free memory to the system. The allocator cannot use a block for small pieces, nor pieces for a block, so a
/// process that alternates steps and replays would hold both. trim() affects the whole process, so it runs only if much
/// memory is free.
void trim() {
  if (mallinfo2().fordblks > much) {
    malloc_trim(0);
  }
}
#else
void trim() {}
#endif

}  // namespace

void Arena::release() {
  if (data_) {
    make_room();
  }
}

void Arena::make_room() {
  data_.clear();
  size_ = 0;
  trim();
}

void* Arena::reserve(std::size_t bytes) {
  if (bytes > size_) {
    make_room();
    data_ = c10::GetAllocator(c10::kCPU)->allocate(bytes);
    size_ = bytes;
  }
  return data_.get();
}

Places place(const std::vector<Lifetime>& lifetimes) {
  Places out{.offsets = std::vector<std::size_t>(lifetimes.size()), .bytes = 0};
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  std::vector<std::size_t> placed;  // sorted by address
  for (const std::size_t i : order) {
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      const bool together = lifetimes[other].first <= lifetimes[i].last && lifetimes[i].first <= lifetimes[other].last;
      if (!together) {
        continue;
      }
      if (out.offsets[other] >= offset + aligned(lifetimes[i].bytes)) {
        break;  // fits before this one
      }
      offset = std::max(offset, out.offsets[other] + aligned(lifetimes[other].bytes));
    }
    out.offsets[i] = offset;
    out.bytes = std::max(out.bytes, offset + aligned(lifetimes[i].bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](std::size_t a, std::size_t b) { return out.offsets[a] < out.offsets[b]; }),
                  i);
  }
  return out;
}

}  // namespace danling::inline v0::tape
