// The update rules for any CPU. CMakeLists.txt sets the instruction set, and forbids fused products, which would change
// bits.
#include <optim/rules/loops.hpp>

namespace danling::inline v0::optim::rules {

const Kernels baseline_kernels = make_kernels("baseline");

}  // namespace danling::inline v0::optim::rules
