// Loops over vectors of numbers that are compiled for more than one kind of CPU.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include <ATen/Version.h>

namespace danling::inline v0::metrics::detail {

// The compiler splits them into the registers that there are. Always passed by reference: how a vector is passed by
// value depends on the CPU that a function is compiled for.
using Doubles = double __attribute__((vector_size(64)));
using Floats = float __attribute__((vector_size(64)));
using Ints = std::int32_t __attribute__((vector_size(64)));
constexpr std::int64_t num_doubles = 8;
constexpr std::int64_t num_floats = 16;

namespace vectors {

// Without FMA, so that every CPU gives the same bits.
#if defined(__x86_64__)
template <class Work>
[[gnu::target("avx2")]] void run_avx2(const Work& work) {
  work();
}
#endif

}  // namespace vectors

/// Runs `work`, an inlined lambda (`[&]() __attribute__((always_inline)) {...}`), as it was compiled for AVX2 where the
/// CPU and LibTorch's ATEN_CPU_CAPABILITY allow it. Functions that it calls must be inlined too.
template <class Work>
void run_vectors(const Work& work) {
#if defined(__x86_64__)
  static const bool avx2 = at::get_cpu_capability().substr(0, 3) == "AVX";
  if (avx2) {
    vectors::run_avx2(work);
    return;
  }
#endif
  work();
}

// Numbers and vectors of them, by one name.

[[gnu::always_inline]] inline void load(const double* from, double& to) { to = *from; }
[[gnu::always_inline]] inline void load(const float* from, double& to) { to = static_cast<double>(*from); }
[[gnu::always_inline]] inline void load(const double* from, Doubles& to) { std::memcpy(&to, from, sizeof(to)); }
[[gnu::always_inline]] inline void load(const float* from, Doubles& to) {
  float __attribute__((vector_size(32))) narrow;
  std::memcpy(&narrow, from, sizeof(narrow));
  to = __builtin_convertvector(narrow, Doubles);
}

[[gnu::always_inline]] inline double total_of(double number) { return number; }
[[gnu::always_inline]] inline double total_of(const Doubles& v) {
  return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

}  // namespace danling::inline v0::metrics::detail
