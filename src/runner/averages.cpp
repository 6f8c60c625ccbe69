// Averages of the weights (EMA, SWA) in a run.
#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

std::string TorchRunnerBase::evaluated_average() const { return {}; }

}  // namespace danling::inline v0
