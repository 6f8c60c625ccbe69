// Loops of tapes for CPUs with AVX-512.
#include <tape/kernels/loops.hpp>

#ifdef __AVX512F__
#include <tape/kernels/vector_math.hpp>
#endif

namespace danling::inline v0::tape {

#ifdef __AVX512F__
const Kernels avx512_kernels = make_kernels(has_vector_math, vector_exp, vector_log, 16);
#else  // another architecture
const Kernels avx512_kernels = make_kernels(nullptr, nullptr, nullptr, 1);
#endif

}  // namespace danling::inline v0::tape
