// Loops of tapes for CPUs with AVX2.
#include <tape/kernels/loops.hpp>

#ifdef __AVX2__
#include <tape/kernels/vector_math.hpp>
#endif

namespace danling::inline v0::tape {

#ifdef __AVX2__
const Kernels avx2_kernels = make_kernels(has_vector_math, vector_exp, vector_log, 8);
#else  // another architecture
const Kernels avx2_kernels = make_kernels(nullptr, nullptr, nullptr, 1);
#endif

}  // namespace danling::inline v0::tape
