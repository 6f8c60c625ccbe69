// Update rules for any CPU. CMakeLists.txt sets the instruction set, and disables fused multiply-add, which would
// change bits.
#include <optim/rules/layerwise.hpp>

namespace danling::inline v0::optim::rules {

const Kernels baseline_kernels = make_kernels("baseline");
const Layerwise baseline_layerwise = {make_layerwise<float>(), make_layerwise<double>()};

}  // namespace danling::inline v0::optim::rules
