#include <optim/updates.hpp>

#include <cmath>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/view_as_real.h>

namespace danling::inline v0::optim::detail {

void update_sgd(at::Tensor param, at::Tensor grad, at::Tensor& momentum, const OptimizerOptions& options) {
  if (*options.maximize) {
    grad = grad.neg();
  }
  if (*options.weight_decay != 0) {
    grad = grad.add(param, *options.weight_decay);
  }
  if (*options.momentum != 0) {
    if (momentum.defined()) {
      momentum.mul_(*options.momentum).add_(grad, 1 - *options.dampening);
    } else {
      momentum = at::empty_like(param);
      momentum.copy_(grad);
    }
    grad = *options.nesterov ? grad.add(momentum, *options.momentum) : momentum;
  }
  param.add_(grad, -*options.lr);
}

void update_adam(at::Tensor param, at::Tensor grad, std::array<at::Tensor, 3> moments, double count,
                 const at::Tensor& device_count, const OptimizerOptions& options, bool decoupled) {
  if (*options.maximize) {
    grad = grad.neg();
  }
  if (*options.weight_decay != 0) {
    if (decoupled) {
      param.mul_(1 - *options.lr * *options.weight_decay);
    } else {
      grad = grad.add(param, *options.weight_decay);
    }
  }
  if (param.is_complex()) {
    param = at::view_as_real(param);
    grad = at::view_as_real(grad);
    for (auto& moment : moments) {
      moment = moment.defined() ? at::view_as_real(moment) : moment;
    }
  }
  auto& [exp_avg, exp_avg_sq, max_exp_avg_sq] = moments;
  const auto [beta1, beta2] = *options.betas;
  exp_avg.lerp_(grad, 1 - beta1);
  exp_avg_sq.mul_(beta2).addcmul_(grad, grad, 1 - beta2);
  at::Tensor second = exp_avg_sq;
  if (*options.amsgrad) {
    at::maximum_out(max_exp_avg_sq, max_exp_avg_sq, exp_avg_sq);
    second = max_exp_avg_sq;
  }
  if (count < 0) {
    const at::Tensor updates = device_count.to(at::kDouble);
    const auto bias = [&](double beta) { return at::pow(beta, updates).neg_().add_(1); };
    const at::Tensor denominator = second.sqrt().div_(bias(beta2).sqrt_()).add_(*options.eps);
    // As in addcdiv: half precision in float32.
    const auto wide = c10::elementSize(param.scalar_type()) == 2 ? at::kFloat : param.scalar_type();
    param.sub_(exp_avg.to(wide).mul(bias(beta1).reciprocal_().mul_(*options.lr)).div_(denominator));
    return;
  }
  const double step_size = *options.lr / (1 - std::pow(beta1, count));
  const double second_scale = std::sqrt(1 - std::pow(beta2, count));
  param.addcdiv_(exp_avg, second.sqrt().div_(second_scale).add_(*options.eps), -step_size);
}

}  // namespace danling::inline v0::optim::detail
