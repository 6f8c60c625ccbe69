// The metrics of a runner, from its config.
#include <danling/metrics/build.hpp>
#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

void TorchRunnerBase::build_metrics() {
  if (auto configured = danling::metrics::build(config().metrics)) {
    metrics = std::move(configured);
    train_metrics = nullptr;
    evaluate_metrics = nullptr;
  }
}

}  // namespace danling::inline v0
