// Update rules for CPUs with AVX-512. CMakeLists.txt sets the instruction set, and disables fused multiply-add, which
// would change bits.
#include <optim/rules/layerwise.hpp>

namespace danling::inline v0::optim::rules {

const Kernels avx512_kernels = make_kernels("avx512");
const Layerwise avx512_layerwise = {make_layerwise<float>(), make_layerwise<double>()};

}  // namespace danling::inline v0::optim::rules
