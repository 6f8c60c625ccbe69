// Checks of gradients and state before an update, and a scale on a device.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/optim/optimizer.hpp>

#include <optim/fused_kernels.hpp>

namespace danling::inline v0::optim::detail {

/// Divisor and flag of an update, as tensors on the device of its parameters.
struct DeviceScale {
  at::Tensor divisor;    // float64, undefined for 1
  at::Tensor found_inf;  // float32, 0 or 1; undefined without a flag
  DeviceScale(const GradScale& scale, at::Device device);
  OptionalTensor flag() const { return found_inf.defined() ? OptionalTensor(found_inf) : std::nullopt; }
  /// Increment of the counts: 1 - found_inf.
  at::Tensor count_increment() const;
};

/// clip_grad_norm with a scale, for gradients on a device.
at::Tensor clip_on_device(const std::vector<at::Tensor>& params, double max_norm, GradScale& scale);
/// Stores in `scale` the factor for gradients of this norm, which is already divided by `scale`. No device wait.
void limit_norm(const at::Tensor& norm, double max_norm, GradScale& scale);

[[noreturn, gnu::cold, gnu::noinline]] void throw_gradient(std::string_view optimizer, const at::Tensor& param,
                                                           const at::Tensor& grad, const std::string& what);

/// Checks that a gradient is dense and has its parameter's shape and device. `what()` describes the parameter; called
/// only on an error.
template <class Describe>
void check_gradient(std::string_view optimizer, const at::Tensor& param, const at::Tensor& grad, Describe&& what) {
  if (grad.layout() != c10::kStrided || grad.sizes() != param.sizes() || grad.device() != param.device()) [[unlikely]] {
    throw_gradient(optimizer, param, grad, what());
  }
}

[[noreturn, gnu::cold, gnu::noinline]] void throw_buffer(std::string_view optimizer, const at::Tensor& param,
                                                         at::ScalarType dtype, const at::Tensor& buffer,
                                                         const char* key, const std::string& what);

/// Checks that a buffer has its parameter's device: `model.to(device)` after the first update does not move it.
/// `dtype`: that of the state.
template <class Describe>
void check_buffer(std::string_view optimizer, const at::Tensor& param, at::ScalarType dtype, const at::Tensor& buffer,
                  const char* key, Describe&& what) {
  if (buffer.device() != param.device() || buffer.scalar_type() != dtype || buffer.sizes() != param.sizes())
      [[unlikely]] {
    throw_buffer(optimizer, param, dtype, buffer, key, what());
  }
}

/// Throws for a group whose parameters were replaced.
[[noreturn, gnu::cold, gnu::noinline]] void throw_replaced(std::string_view optimizer, std::size_t group);

}  // namespace danling::inline v0::optim::detail
