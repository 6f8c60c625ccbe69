#include <danling/optim/clip.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>

#include <danling/core/error.hpp>

#include <optim/memory.hpp>
#include <optim/plan.hpp>
#include <optim/spans.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0::optim {
namespace {

constexpr double clip_epsilon = 1e-6;  // torch.nn.utils

/// Gradients grouped by device and dtype; each group is the input of one foreach kernel.
using Batches = std::vector<std::vector<at::Tensor>>;

Batches batches(const std::vector<at::Tensor>& params, const char* where) {
  Batches out;
  for (const auto& param : params) {
    const at::Tensor& grad = param.grad();
    if (!grad.defined() || grad.numel() == 0) {
      continue;  // LibTorch's maximum needs at least one element
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

bool on_cpu(const Batches& grads) {
  return std::all_of(grads.begin(), grads.end(), [](const auto& batch) { return batch[0].is_cpu(); });
}

/// One norm per gradient; for half precision in float32, to avoid overflow.
std::vector<at::Tensor> norms_of(const std::vector<at::Tensor>& batch, double order) {
  const bool half = c10::elementSize(batch[0].scalar_type()) == 2;
  return at::_foreach_norm(batch, order, half ? std::optional(at::kFloat) : std::nullopt);
}

/// float32 unless the gradients are wider; a norm beyond float32 becomes infinite, as in torch.nn.utils.
at::Tensor norm_tensor(double norm, const Batches& grads) {
  const bool wide = !grads.empty() && c10::elementSize(grads[0][0].scalar_type()) >= 8;
  return at::scalar_tensor(norm, at::TensorOptions().dtype(at::kDouble)).to(wide ? at::kDouble : at::kFloat);
}

/// The sum of squares in float64, which cannot overflow for narrower dtypes; the same bits for any number of threads.
double squares_of(const std::vector<at::Tensor>& batch) {
  const at::ScalarType real = c10::toRealValueType(batch[0].scalar_type());
  const bool plain = detail::has_kernel(batch[0].scalar_type()) &&
                     std::all_of(batch.begin(), batch.end(),
                                 [](const at::Tensor& grad) { return grad.is_non_overlapping_and_dense(); });
  if (plain) {
    return detail::sum_squares(batch);
  }
  std::vector<at::Tensor> rows;
  for (const auto& grad : batch) {
    const at::Tensor row = grad.is_complex() ? at::view_as_real(grad.resolve_conj()) : grad;
    rows.push_back(row.to(detail::has_kernel(real) ? real : at::kFloat).contiguous());
  }
  return detail::sum_squares(rows);
}

/// The common norm, on the host.
double host_norm(const Batches& grads) {
  double squares = 0;
  for (const auto& batch : grads) {
    squares += squares_of(batch);
  }
  return std::sqrt(squares);
}

/// Stacks all scalars as one vector on the device of the first.
at::Tensor gather(std::vector<at::Tensor> scalars) {
  for (auto& scalar : scalars) {
    if (scalar.device() != scalars[0].device() || scalar.scalar_type() != scalars[0].scalar_type()) {
      scalar = tensors::moved(scalar, scalars[0].device(), scalars[0].scalar_type());
    }
  }
  return at::stack(scalars);
}

at::Tensor device_norm(const Batches& grads, double grad_divisor) {
  std::vector<at::Tensor> norms;
  for (const auto& batch : grads) {
    for (auto& norm : norms_of(batch, 2)) {
      norms.push_back(std::move(norm));
    }
  }
  at::Tensor norm = at::linalg_vector_norm(gather(std::move(norms)), 2);
  return grad_divisor == 1.0 ? norm : norm.div_(grad_divisor);
}

void limit_norm(double norm, double max_norm, GradScale& scale) {
  const double factor = max_norm / (norm + clip_epsilon);
  if (!std::isfinite(norm)) {
    scale.found_inf = at::scalar_tensor(1.0, at::TensorOptions().dtype(at::kFloat));
  } else if (factor < 1) {
    scale.divisor /= factor;
  }
}

bool host_nonfinite(const std::vector<at::Tensor>& batch) {
  if (std::isfinite(squares_of(batch))) {
    return false;
  }
  // Also reached for float64 numbers above 1e154, whose squares overflow.
  return std::any_of(batch.begin(), batch.end(),
                     [](const at::Tensor& grad) { return !at::isfinite(grad).all().item().toBool(); });
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
  const Batches grads = batches(params, "optim.grad_norm");
  return on_cpu(grads) ? norm_tensor(host_norm(grads) / grad_divisor, grads) : device_norm(grads, grad_divisor);
}

at::Tensor clip_grad_norm(const std::vector<at::Tensor>& params, double max_norm, double grad_divisor) {
  const at::NoGradGuard no_grad;
  check_limit(max_norm, grad_divisor, "optim.clip_grad_norm");
  detail::separate_gradients(params);
  const Batches grads = batches(params, "optim.clip_grad_norm");
  if (on_cpu(grads)) {
    const double norm = host_norm(grads) / grad_divisor;
    const double factor = max_norm / (norm + clip_epsilon);
    if (!(factor >= 1)) {
      for (const auto& batch : grads) {
        at::_foreach_mul_(batch, factor);
      }
    }
    return norm_tensor(norm, grads);
  }
  at::Tensor norm = device_norm(grads, grad_divisor);
  // Always multiplies: only the device knows whether it must.
  const at::Tensor factor = norm.add(clip_epsilon).reciprocal_().mul_(max_norm).clamp_max_(1.0);
  for (const auto& batch : grads) {
    at::_foreach_mul_(batch, tensors::moved(factor, batch[0].device()));
  }
  return norm;
}

at::Tensor clip_grad_norm(const std::vector<at::Tensor>& params, double max_norm, GradScale& scale) {
  const at::NoGradGuard no_grad;
  check_limit(max_norm, scale.divisor, "optim.clip_grad_norm");
  const Batches grads = batches(params, "optim.clip_grad_norm");
  if (on_cpu(grads)) {
    const double by = scale.scale.defined() ? scale.scale.item().toDouble() : 1.0;
    const double norm = host_norm(grads) / (scale.divisor * by);
    limit_norm(norm, max_norm, scale);
    return norm_tensor(norm, grads);
  }
  return detail::clip_on_device(params, max_norm, scale);
}

at::Tensor detail::clip_on_device(const std::vector<at::Tensor>& params, double max_norm, GradScale& scale) {
  at::Tensor norm = device_norm(batches(params, "optim.clip_grad_norm"), scale.divisor);
  if (scale.scale.defined()) {
    norm.div_(tensors::moved(scale.scale.detach().reshape({}), norm.device(), at::kDouble));
  }
  limit_norm(norm, max_norm, scale);
  return norm;
}

void detail::limit_norm(const at::Tensor& norm, double max_norm, GradScale& scale) {
  if (norm.is_cpu()) {
    optim::limit_norm(norm.item<double>(), max_norm, scale);
    return;
  }
  const auto here = [&](const at::Tensor& tensor) {
    return tensor.detach().reshape({}).to(norm.device(), at::kDouble, /*non_blocking=*/true);
  };
  const at::Tensor excess = norm.add(clip_epsilon).div_(max_norm).clamp_min_(1.0);
  scale.scale = scale.scale.defined() ? here(scale.scale).mul(excess) : excess;
  at::Tensor nonfinite = norm.isfinite().logical_not_();
  scale.found_inf = scale.found_inf.defined() ? nonfinite.logical_or_(here(scale.found_inf).ne(0)) : nonfinite;
}

void clip_grad_value(const std::vector<at::Tensor>& params, double max_value, double grad_divisor) {
  const at::NoGradGuard no_grad;
  check_limit(max_value, grad_divisor, "optim.clip_grad_value");
  detail::separate_gradients(params);
  const double limit = max_value * grad_divisor;
  for (const auto& batch : batches(params, "optim.clip_grad_value")) {
    check<StateError>(!batch[0].is_complex(), "optim.clip_grad_value",
                      "expected real gradients, got complex ones, which have no order; use clip_grad_norm");
    at::_foreach_clamp_min_(batch, -limit);
    at::_foreach_clamp_max_(batch, limit);
  }
}

at::Tensor nonfinite_flag(const std::vector<at::Tensor>& params) {
  const at::NoGradGuard no_grad;
  const Batches grads = batches(params, "optim.nonfinite_flag");
  const auto flag = at::TensorOptions().dtype(at::kFloat);
  if (on_cpu(grads)) {
    return at::scalar_tensor(std::any_of(grads.begin(), grads.end(), host_nonfinite) ? 1.0 : 0.0, flag);
  }
  // The largest magnitude is NaN or infinite exactly if an element is; unlike the 2-norm it cannot overflow.
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<at::Tensor> largest;
  for (const auto& batch : grads) {
    for (auto& norm : norms_of(batch, infinity)) {
      largest.push_back(std::move(norm));
    }
  }
  return at::isfinite(gather(std::move(largest))).all().logical_not_().to(at::kFloat);
}

bool has_nonfinite(const std::vector<at::Tensor>& params) { return nonfinite_flag(params).item().toDouble() != 0; }

}  // namespace danling::inline v0::optim
