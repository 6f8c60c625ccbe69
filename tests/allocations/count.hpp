// Counts every block that the process takes from the allocator: included by the one program that replaces malloc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace allocations {
std::atomic<std::int64_t> count{0};
}

// Everything in the process, LibTorch included, allocates through these.
extern "C" void* malloc(std::size_t size) {
  allocations::count.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
extern "C" void* calloc(std::size_t number, std::size_t size) {
  allocations::count.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(number, size);
}
extern "C" void* realloc(void* block, std::size_t size) {
  allocations::count.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(block, size);
}
extern "C" int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  allocations::count.fetch_add(1, std::memory_order_relaxed);
  *block = __libc_memalign(alignment, size);
  return *block == nullptr ? 12 : 0;
}
