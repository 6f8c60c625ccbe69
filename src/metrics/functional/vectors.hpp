// Loops compiled for several CPU types.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>

#include <ATen/Version.h>

namespace danling::inline v0::metrics::detail {

#if defined(__x86_64__)
// Without FMA, so that all CPUs compute the same bits.
template <class Work>
[[gnu::target("avx2")]] void run_avx2(const Work& work) {
  work();
}
template <class Work>
[[gnu::target("avx2")]] void run_32_bytes(const Work& work) {
  work(std::integral_constant<std::size_t, 32>{});
}
template <class Work>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void run_64_bytes(const Work& work) {
  work(std::integral_constant<std::size_t, 64>{});
}
#endif

/// Runs `work`, an inlined lambda (`[&]() __attribute__((always_inline)) {...}`), in the AVX2 variant if the CPU and
/// LibTorch's ATEN_CPU_CAPABILITY allow it. The functions it calls must be inlined too.
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

/// The same for a `work` that uses vectors explicitly: it takes the CPU's vector size in bytes, as a
/// std::integral_constant.
template <class Work>
void run_vectors_of_bytes(const Work& work) {
#if defined(__x86_64__)
  static const std::string cpu = at::get_cpu_capability();
  if (cpu == "AVX512") {
    run_64_bytes(work);
    return;
  }
  if (cpu.substr(0, 3) == "AVX") {
    run_32_bytes(work);
    return;
  }
#endif
  work(std::integral_constant<std::size_t, 16>{});
}

}  // namespace danling::inline v0::metrics::detail
