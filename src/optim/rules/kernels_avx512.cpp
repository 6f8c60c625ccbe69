// The update rules for CPUs with AVX-512. CMakeLists.txt sets the instruction set, and forbids fused products, which
// would change bits.
#include <optim/rules/loops.hpp>

namespace danling::inline v0::optim::rules {

const Kernels avx512_kernels = make_kernels("avx512");

}  // namespace danling::inline v0::optim::rules
