#include "target.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <danling/core/error.hpp>

#if defined(__SANITIZE_ADDRESS__)
#define DANLING_COUNTS_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DANLING_COUNTS_MEMORY 1
#endif
#endif

#ifdef DANLING_COUNTS_MEMORY
// Of the sanitizer's runtime; g++ 12 has no header for them.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*taken)(const volatile void*, std::size_t),
                                              void (*given)(const volatile void*));
std::size_t __sanitizer_get_allocated_size(const volatile void* block);
}
#endif

namespace danling_fuzz {
namespace {

// Bytes since the run began; counted where the address sanitizer is, and zero elsewhere.
std::ptrdiff_t now = 0;
std::ptrdiff_t peak = 0;

#ifdef DANLING_COUNTS_MEMORY
void taken(const volatile void*, std::size_t size) {
  now += static_cast<std::ptrdiff_t>(size);
  peak = std::max(peak, now);
}
void given(const volatile void* block) {
  now -= block == nullptr ? 0 : static_cast<std::ptrdiff_t>(__sanitizer_get_allocated_size(block));
}
const int installed = __sanitizer_install_malloc_and_free_hooks(taken, given);
#endif

}  // namespace

void require(bool holds, std::string_view what) {
  if (!holds) {
    std::fprintf(stderr, "expected %.*s\n", static_cast<int>(what.size()), what.data());
    std::abort();
  }
}

void check(const unsigned char* data, std::size_t size) {
#ifdef DANLING_COUNTS_MEMORY
  require(installed != 0, "the sanitizer to report allocations");
#endif
  now = 0;
  peak = 0;
  try {
    run({reinterpret_cast<const char*>(data), size});
  } catch (const danling::Error& error) {
    const std::string_view text = error.what();
    require(text.starts_with("[") && text.find('\n') == std::string_view::npos,
            danling::detail::concat("an error of one line, got ", text));
  }
  const std::size_t most = allowance.base + allowance.per_byte * size;
  if (static_cast<std::size_t>(peak) > most) {
    std::fprintf(stderr, "%td bytes of memory at a time for an input of %zu bytes; at most %zu are allowed\n", peak,
                 size, most);
    std::abort();
  }
}

}  // namespace danling_fuzz

#ifdef DANLING_FUZZ
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  danling_fuzz::check(data, size);
  return 0;
}
#endif
