// exp and log over vectors, by the functions that LibTorch's kernels call.
#pragma once

#include <dlfcn.h>
#include <immintrin.h>

#include <cstdint>

namespace danling::inline v0::tape {
namespace {

#ifdef __AVX512F__
using Vector = __m512;
constexpr std::int64_t lanes = 16;
constexpr const char* exp_name = "Sleef_expf16_u10";
constexpr const char* log_name = "Sleef_logf16_u10";
Vector load(const float* x) { return _mm512_loadu_ps(x); }
void store(float* out, Vector x) { _mm512_storeu_ps(out, x); }
#else
using Vector = __m256;
constexpr std::int64_t lanes = 8;
constexpr const char* exp_name = "Sleef_expf8_u10";
constexpr const char* log_name = "Sleef_logf8_u10";
Vector load(const float* x) { return _mm256_loadu_ps(x); }
void store(float* out, Vector x) { _mm256_storeu_ps(out, x); }
#endif

using Function = Vector (*)(Vector);

void apply(Function function, const float* x, float* out, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    store(out + i, function(load(x + i)));
  }
  if (i < n) {
    float rest[lanes] = {};
    for (std::int64_t k = 0; k < n - i; ++k) {
      rest[k] = x[i + k];
    }
    store(rest, function(load(rest)));
    for (std::int64_t k = 0; k < n - i; ++k) {
      out[i + k] = rest[k];
    }
  }
}

/// Null if LibTorch does not export it.
Function find(const char* name) { return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name)); }

// Looked up at the first call: code of this file must not run on a CPU without these vectors.
Function exp_function() {
  static const Function function = find(exp_name);
  return function;
}
Function log_function() {
  static const Function function = find(log_name);
  return function;
}

bool has_vector_math() { return exp_function() != nullptr && log_function() != nullptr; }
void vector_exp(const float* x, float* out, std::int64_t n) { apply(exp_function(), x, out, n); }
void vector_log(const float* x, float* out, std::int64_t n) { apply(log_function(), x, out, n); }

}  // namespace
}  // namespace danling::inline v0::tape
