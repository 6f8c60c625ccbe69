#include <runner/histograms.hpp>

#include <utility>

#include <ATen/core/grad_mode.h>

#include <danling/core/error.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/torch_runner_base.hpp>
#include <danling/telemetry/logger.hpp>

namespace danling::inline v0::detail {

void Histograms::on_gradients(const GradientsEvent& event) {
  const std::int64_t step = event.runner.state().train.global_step;
  if (step % interval_ != 0) {
    return;
  }
  const auto [last, first] = last_.try_emplace(event.model, step);
  if (!first && std::exchange(last->second, step) == step) {
    return;  // an update was skipped
  }
  const Parallelism& parallelism = event.runner.parallelism();
  if (!parallelism.can_gather_full_state()) {
    if (!std::exchange(has_warned_, true)) {
      event.runner.logger().warning(
          "histograms: expected models without slices or stages, got parallel.axes with them: no histograms "
          "are written; set histogram_interval: 0");
    }
    return;
  }
  const at::NoGradGuard no_grad;
  const std::string prefix = event.model.empty() ? "" : concat(event.model, ".");
  for (const auto& [name, trained] : event.parameters()) {
    if (trained.is_complex() || !trained.requires_grad()) {
      continue;
    }
    // For sharded rows, all ranks gather the whole tensor; the main process has the sinks.
    event.runner.write_histogram(concat("weights/", prefix, name), parallelism.full_tensor(trained, trained.detach()));
    if (const at::Tensor& gradient = trained.grad(); gradient.defined() && gradient.layout() == at::kStrided) {
      at::Tensor whole = parallelism.full_tensor(trained, gradient);
      whole = whole.to(whole.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).div(event.divisor);
      event.runner.write_histogram(
          concat("gradients/", prefix, name),
          event.loss_scale.defined() ? whole.div_(event.loss_scale.to(whole.device())) : whole);
    }
  }
}

}  // namespace danling::inline v0::detail
