#include <optim/fused_kernels.hpp>

#include <array>
#include <atomic>
#include <initializer_list>
#include <limits>
#include <vector>

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <optim/rule.hpp>

namespace danling::inline v0::optim::detail {
namespace {

double epsilon_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return 0x1p-23;
    case at::kBFloat16:
      return 0x1p-7;
    case at::kHalf:
      return 0x1p-10;
    default:
      return 0x1p-52;
  }
}

/// One tensor per size, with irregular numbers from -1 to 1; also in float64.
struct Numbers {
  std::vector<at::Tensor> given, exact;

  Numbers(at::IntArrayRef sizes, at::Device device, at::ScalarType dtype, bool aligned, double phase) {
    for (const std::int64_t size : sizes) {
      const std::int64_t offset = aligned ? 0 : 1;
      const at::Tensor wide = at::arange(size, at::kDouble).mul_(1.7).add_(phase).sin_();
      given.push_back(
          at::empty({size + offset}, at::TensorOptions().device(device).dtype(dtype)).narrow(0, offset, size));
      given.back().copy_(wide);
      exact.push_back(given.back().cpu().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true));
    }
  }

  /// Positive numbers away from zero, like second moments.
  Numbers squared() && {
    for (std::size_t i = 0; i < given.size(); ++i) {
      given[i].copy_(exact[i].square().add_(0.25));
      exact[i] = given[i].cpu().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
    }
    return std::move(*this);
  }

  bool same() const {
    for (std::size_t i = 0; i < given.size(); ++i) {
      const at::Tensor limit = exact[i].abs().clamp_min_(1).mul_(4 * epsilon_of(given[i].scalar_type()));
      if (!given[i].cpu().to(at::kDouble).sub_(exact[i]).abs_().le(limit).all().item().toBool()) {
        return false;
      }
    }
    return true;
  }
};

constexpr float divisor = 4;

std::optional<at::Tensor> divisor_on(at::Device device, bool divided) {
  return divided ? std::optional(at::full({}, divisor, at::TensorOptions().device(device).dtype(at::kFloat)))
                 : std::nullopt;
}

void divide(Numbers& grads, bool divided) {
  for (auto& grad : grads.exact) {
    grad.div_(divided ? divisor : 1);
  }
}

const Rule& rule_of(FusedKernel kernel) {
  return kernel == FusedKernel::sgd ? sgd_rule() : kernel == FusedKernel::adamw ? adamw_rule() : adam_rule();
}

/// The update in float64 on the CPU. `count`: number of updates, including this one.
void update_exactly(const Rule& rule, const OptimizerOptions& options, double count, const at::Tensor& param,
                    const at::Tensor& grad, std::initializer_list<at::Tensor> buffers) {
  const Variant variant = rule.variant(options);
  double constants[max_constants];
  variant.constants(options, count, nullptr, constants);
  rules::Span span{};
  span.param = param.mutable_data_ptr();
  span.grad = grad.const_data_ptr();
  for (std::size_t row = 0; row < variant.buffers.size(); ++row) {
    span.state[row] = buffers.begin()[variant.buffers[row]].mutable_data_ptr();
  }
  span.count = param.numel();
  span.constants = constants;
  span.param_type = span.grad_type = span.state_type = rules::Type::float64;
  rules::kernels().update[static_cast<std::size_t>(variant.kernel)](span);
}

bool compare_sgd(at::Device device, at::ScalarType dtype, at::IntArrayRef sizes, bool aligned,
                 const OptimizerOptions& options, bool first, bool divided) {
  Numbers params(sizes, device, dtype, aligned, 0.1);
  Numbers grads(sizes, device, dtype, aligned, 0.5);
  Numbers momenta(sizes, device, dtype, aligned, 0.9);
  if (first) {
    for (auto& momentum : momenta.given) {
      momentum.fill_(std::numeric_limits<double>::quiet_NaN());
    }
  }
  const bool has_momentum = *options.momentum != 0;
  call_fused_sgd(params.given, grads.given, momenta.given, first, divisor_on(device, divided), std::nullopt, options);
  divide(grads, divided);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (first) {
      momenta.exact[i].zero_();
    }
    update_exactly(sgd_rule(), options, first ? 1 : 2, params.exact[i], grads.exact[i], {momenta.exact[i]});
  }
  return params.same() && grads.same() && (!has_momentum || momenta.same());
}

bool compare_adam(FusedKernel kernel, at::Device device, at::ScalarType dtype, at::IntArrayRef sizes, bool aligned,
                  const OptimizerOptions& options, bool divided) {
  constexpr double count = 3;
  Numbers params(sizes, device, dtype, aligned, 0.1);
  Numbers grads(sizes, device, dtype, aligned, 0.5);
  Numbers first(sizes, device, dtype, aligned, 0.9);
  Numbers second = Numbers(sizes, device, dtype, aligned, 1.3).squared();
  Numbers largest = Numbers(sizes, device, dtype, aligned, 1.7).squared();
  std::vector<at::Tensor> steps;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    steps.push_back(at::full({}, count, at::TensorOptions().device(device).dtype(at::kFloat)));
  }
  call_fused_adam(kernel, params.given, grads.given, first.given, second.given, largest.given, steps,
                  divisor_on(device, divided), std::nullopt, options);
  divide(grads, divided);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    update_exactly(rule_of(kernel), options, count, params.exact[i], grads.exact[i],
                   {first.exact[i], second.exact[i], largest.exact[i]});
  }
  return params.same() && grads.same() && first.same() && second.same() && largest.same();
}

}  // namespace

FusedKernel kernel_for(FusedKernel kernel, const OptimizerOptions& options) {
  return kernel == FusedKernel::adam && *options.decoupled_weight_decay ? FusedKernel::adamw : kernel;
}

void call_fused_sgd(at::TensorList params, at::TensorList grads, at::TensorList momenta, bool first,
                    const OptionalTensor& grad_scale, const OptionalTensor& found_inf,
                    const OptimizerOptions& options) {
  at::_fused_sgd_(params, grads, *options.momentum != 0 ? momenta : at::TensorList(), *options.weight_decay,
                  *options.momentum, *options.lr, *options.dampening, *options.nesterov, *options.maximize, first,
                  grad_scale, found_inf);
}

void call_fused_adam(FusedKernel kernel, at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                     at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs, at::TensorList steps,
                     const OptionalTensor& grad_scale, const OptionalTensor& found_inf,
                     const OptimizerOptions& options) {
  const auto call = [&](auto&& fused) {
    fused(params, grads, exp_avgs, exp_avg_sqs, *options.amsgrad ? max_exp_avg_sqs : at::TensorList(), steps,
          *options.lr, options.betas->first, options.betas->second, *options.weight_decay, *options.eps,
          *options.amsgrad, *options.maximize, grad_scale, found_inf);
  };
  using Call = void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                        double, double, double, double, double, bool, bool, const std::optional<at::Tensor>&,
                        const std::optional<at::Tensor>&);
  call(kernel == FusedKernel::adamw ? static_cast<Call>(&at::_fused_adamw_) : static_cast<Call>(&at::_fused_adam_));
}

bool compare_fused(FusedKernel kernel, at::Device device, at::ScalarType dtype, at::IntArrayRef sizes) {
  // Momentum, dampening, nesterov; a momentum needs tests of both the first and later updates.
  constexpr std::array<std::array<double, 3>, 4> momenta = {{{0, 0, 0}, {0.9, 0, 0}, {0.9, 0.3, 0}, {0.9, 0, 1}}};
  bool right = true;
  for (int bits = 0; right && bits < 16; ++bits) {
    const bool aligned = (bits & 1) != 0;
    const bool divided = (bits & 2) != 0;
    const bool maximize = (bits & 4) != 0;
    const double weight_decay = (bits & 8) != 0 ? 0.1 : 0;
    if (kernel == FusedKernel::sgd) {
      for (const auto& [momentum, dampening, nesterov] : momenta) {
        const OptimizerOptions options = sgd_rule().complete({.lr = 0.5,
                                                              .momentum = momentum,
                                                              .dampening = dampening,
                                                              .weight_decay = weight_decay,
                                                              .nesterov = nesterov != 0,
                                                              .maximize = maximize});
        right = right && compare_sgd(device, dtype, sizes, aligned, options, /*first=*/false, divided) &&
                (momentum == 0 || compare_sgd(device, dtype, sizes, aligned, options, /*first=*/true, divided));
      }
    } else {
      for (const bool amsgrad : {false, true}) {
        const OptimizerOptions options = rule_of(kernel).complete(
            {.lr = 0.5, .weight_decay = weight_decay, .amsgrad = amsgrad, .maximize = maximize});
        right = right && compare_adam(kernel, device, dtype, sizes, aligned, options, divided);
      }
    }
  }
  return right;
}

namespace {

bool is_equal(FusedKernel kernel, at::Device device, at::ScalarType dtype) {
  try {
    return compare_fused(kernel, device, dtype, brief_sizes);
  } catch (const c10::Error&) {
    return false;  // not available for this dtype or device
  }
}

}  // namespace

bool is_usable(FusedKernel kernel, at::Device device, at::ScalarType dtype) {
  if (!device.is_cuda() || !at::isFloatingType(dtype) || c10::elementSize(dtype) < 2) {
    return false;
  }
  enum : std::int8_t { unknown, yes, no };
  static std::atomic<std::int8_t> known[3][static_cast<std::size_t>(c10::ScalarType::NumOptions)];
  auto& cell = known[static_cast<std::size_t>(kernel)][static_cast<std::size_t>(dtype)];
  std::int8_t verdict = cell.load(std::memory_order_relaxed);
  if (verdict == unknown) [[unlikely]] {
    verdict = is_equal(kernel, device, dtype) ? yes : no;
    cell.store(verdict, std::memory_order_relaxed);
  }
  return verdict == yes;
}

}  // namespace danling::inline v0::optim::detail
