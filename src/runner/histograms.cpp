#include "runner/histograms.hpp"

#include <utility>

#include <ATen/core/grad_mode.h>

#include <danling/core/error.hpp>
#include <danling/runner/torch_runner_base.hpp>

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
  const at::NoGradGuard no_grad;
  const std::string prefix = event.model.empty() ? "" : concat(event.model, ".");
  for (const auto& [name, parameter] : event.parameters()) {
    if (parameter.is_complex() || !parameter.requires_grad()) {
      continue;
    }
    event.runner.write_histogram(concat("weights/", prefix, name), parameter);
    if (const at::Tensor& gradient = parameter.grad(); gradient.defined() && gradient.layout() == at::kStrided) {
      at::Tensor whole =
          gradient.to(gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).div(event.divisor);
      event.runner.write_histogram(concat("gradients/", prefix, name),
                                   event.loss_scale.defined() ? whole.div_(event.loss_scale) : whole);
    }
  }
}

}  // namespace danling::inline v0::detail
