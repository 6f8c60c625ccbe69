// Loops that are compiled for more than one kind of CPU.
#pragma once

#include <string>

#include <ATen/Version.h>

namespace danling::inline v0::metrics::detail {

#if defined(__x86_64__)
// Without FMA, so that every CPU gives the same bits.
template <class Work>
[[gnu::target("avx2")]] void run_avx2(const Work& work) {
  work();
}
#endif

/// Runs `work`, an inlined lambda (`[&]() __attribute__((always_inline)) {...}`), as it was compiled for AVX2 where the
/// CPU and LibTorch's ATEN_CPU_CAPABILITY allow it. Functions that it calls must be inlined too.
template <class Work>
void run_vectors(const Work& work) {
#if defined(__x86_64__)
  static const bool avx2 = at::get_cpu_capability().substr(0, 3) == "AVX";
  if (avx2) {
    run_avx2(work);
    return;
  }
#endif
  work();
}

}  // namespace danling::inline v0::metrics::detail
