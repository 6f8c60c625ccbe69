#include <danling/optim/clip.hpp>

#include <cmath>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::optim {
namespace {

/// Gradients of one device and dtype: what a foreach kernel takes at once.
using Batches = std::vector<std::vector<at::Tensor>>;

Batches batches(const std::vector<at::Tensor>& params, const char* where) {
  Batches out;
  for (const auto& param : params) {
    const at::Tensor& grad = param.grad();
    if (!grad.defined()) {
      continue;
    }
    check<StateError>(grad.layout() == c10::kStrided, where, "expected dense gradients, got a sparse one");
    std::vector<at::Tensor>* batch = nullptr;
    for (auto& candidate : out) {
      if (candidate[0].device() == grad.device() && candidate[0].scalar_type() == grad.scalar_type()) {
        batch = &candidate;
      }
    }
    if (batch == nullptr) {
      batch = &out.emplace_back();
      batch->reserve(params.size());
    }
    batch->push_back(grad);
  }
  return out;
}

/// The norms of all gradients as one vector on the first one's device.
at::Tensor norms_of(const Batches& grads, double order) {
  std::vector<at::Tensor> norms;
  for (const auto& batch : grads) {
    for (auto& norm : at::_foreach_norm(batch, order)) {
      norms.push_back(std::move(norm));
    }
  }
  for (auto& norm : norms) {
    if (norm.device() != norms[0].device() || norm.scalar_type() != norms[0].scalar_type()) {
      norm = norm.to(norms[0].options(), /*non_blocking=*/true);
    }
  }
  return at::stack(norms);
}

at::Tensor norm_of(const Batches& grads, double grad_divisor) {
  if (grads.empty()) {
    return at::scalar_tensor(0.0, at::TensorOptions().dtype(at::kFloat));
  }
  at::Tensor norm = at::linalg_vector_norm(norms_of(grads, 2), 2);
  return grad_divisor == 1.0 ? norm : norm.div_(grad_divisor);
}

void check_limit(double limit, double grad_divisor, const char* where) {
  check<ConfigError>(limit > 0, where, "expected a limit above 0, got ", limit);
  check<ConfigError>(grad_divisor > 0 && std::isfinite(grad_divisor), where,
                     "expected a finite grad_divisor above 0, got ", grad_divisor);
}

}  // namespace

at::Tensor grad_norm(const std::vector<at::Tensor>& params, double grad_divisor) {
  const at::NoGradGuard no_grad;
  check_limit(1.0, grad_divisor, "optim.grad_norm");
  return norm_of(batches(params, "optim.grad_norm"), grad_divisor);
}

at::Tensor clip_grad_norm(const std::vector<at::Tensor>& params, double max_norm, double grad_divisor) {
  const at::NoGradGuard no_grad;
  check_limit(max_norm, grad_divisor, "optim.clip_grad_norm");
  const Batches grads = batches(params, "optim.clip_grad_norm");
  at::Tensor norm = norm_of(grads, grad_divisor);
  if (grads.empty()) {
    return norm;
  }
  const at::Tensor factor = norm.add(1e-6).reciprocal_().mul_(max_norm).clamp_max_(1.0);
  if (factor.is_cpu() && factor.item().toDouble() == 1.0) {
    return norm;
  }
  for (const auto& batch : grads) {
    at::_foreach_mul_(batch, factor.to(batch[0].device(), /*non_blocking=*/true));
  }
  return norm;
}

void clip_grad_value(const std::vector<at::Tensor>& params, double max_value, double grad_divisor) {
  const at::NoGradGuard no_grad;
  check_limit(max_value, grad_divisor, "optim.clip_grad_value");
  const double limit = max_value * grad_divisor;
  for (const auto& batch : batches(params, "optim.clip_grad_value")) {
    at::_foreach_clamp_min_(batch, -limit);
    at::_foreach_clamp_max_(batch, limit);
  }
}

at::Tensor nonfinite_flag(const std::vector<at::Tensor>& params) {
  const at::NoGradGuard no_grad;
  const Batches grads = batches(params, "optim.nonfinite_flag");
  if (grads.empty()) {
    return at::scalar_tensor(0.0, at::TensorOptions().dtype(at::kFloat));
  }
  // The largest magnitude is NaN or infinite exactly when an element is; unlike the 2-norm it cannot overflow.
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return at::isfinite(norms_of(grads, infinity)).all().logical_not_().to(at::kFloat);
}

bool has_nonfinite(const std::vector<at::Tensor>& params) { return nonfinite_flag(params).item().toDouble() != 0; }

}  // namespace danling::inline v0::optim
