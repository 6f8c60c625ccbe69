// Assignment of a group's parameters to fused kernels, and the kernels' tensor lists, kept between updates so that an
// update neither builds lists nor allocates.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <optim/fused_kernels.hpp>

namespace danling::inline v0::optim::detail {

/// Restores `tensor` from `before` if the flag is set.
void restore_where(const at::Tensor& found_inf, const at::Tensor& before, const at::Tensor& tensor);

/// Optimizer state of one parameter.
struct Slot {
  at::Tensor param;
  std::array<at::Tensor, 3> buffers;  // undefined until the first gradient
  at::Tensor step;                    // float32 scalar, as torch.optim keeps it; Adam only
  double count = 0;                   // the same number on the host; negative if only the device has it
  bool overlaps = false;              // shares memory with an earlier parameter of the group
};

enum class Route : std::uint8_t {
  skip,   // no gradient
  plain,  // operation by operation
  first,  // fused; the kernel fills the momentum
  fused,
};

/// Divisor and flag of an update, as tensors on the device of its parameters.
struct DeviceScale {
  at::Tensor divisor;    // float64, undefined for 1
  at::Tensor found_inf;  // float32, 0 or 1; undefined without a flag
  DeviceScale(const GradScale& scale, at::Device device);
  OptionalTensor flag() const { return found_inf.defined() ? OptionalTensor(found_inf) : std::nullopt; }
  /// Increment of the counts: 1 - found_inf.
  at::Tensor count_increment() const;
};

/// clip_grad_norm into a scale, for gradients on a device.
at::Tensor clip_on_device(const std::vector<at::Tensor>& params, double max_norm, GradScale& scale);

/// Runs `update` of `tensors`, and restores them if the flag is set.
template <class Update>
void update_unless(const at::Tensor& found_inf, std::vector<at::Tensor> tensors, Update&& update) {
  std::vector<at::Tensor> before;
  for (const auto& tensor : tensors) {
    before.push_back(found_inf.defined() && tensor.defined() ? tensor.clone() : at::Tensor());
  }
  update();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (before[i].defined()) {
      restore_where(found_inf, before[i], tensors[i]);
    }
  }
}

/// Parameters of one device and dtype for one fused call.
struct Bucket {
  Route route;
  std::vector<std::size_t> members;
  std::vector<at::Tensor> params;
  std::vector<at::Tensor> grads;  // empty between updates, so that the gradients can be freed
  std::array<std::vector<at::Tensor>, 3> buffers;
  std::vector<at::Tensor> steps;
  at::Tensor grad_scale;

  /// Collects the gradients; divides them here when the kernel, which takes a float32 divisor, would not be exact.
  /// Returns the kernel's `grad_scale`, or nothing.
  std::optional<at::Tensor> collect(double grad_divisor);
  /// The same with a divisor on the device.
  std::optional<at::Tensor> collect(const DeviceScale& scale);
};

struct Plan {
  std::vector<Slot> slots;
  std::vector<Route> routes;
  std::vector<Route> next;
  std::vector<Bucket> buckets;

  /// Rebuilds the lists when `next` differs from the routes they were built for.
  void rebuild_lists();
  /// Call when the lists hold tensors that are no longer those of the slots.
  void invalidate() { routes.clear(); }
};

/// The slots of a new group.
std::vector<Slot> make_slots(const std::vector<at::Tensor>& params);

/// @throws StateError when `params` differ from the tensors of the slots.
void check_same(std::string_view optimizer, const Plan& plan, const std::vector<at::Tensor>& params, std::size_t group);

[[noreturn]] void throw_gradient(std::string_view optimizer, const at::Tensor& param, const at::Tensor& grad,
                                 const std::string& what);

/// Checks that a gradient is dense, and has its parameter's shape and device. `what()` describes the parameter; called
/// only to throw.
template <class Describe>
void check_gradient(std::string_view optimizer, const at::Tensor& param, const at::Tensor& grad, Describe&& what) {
  if (grad.layout() != c10::kStrided || grad.sizes() != param.sizes() || grad.device() != param.device()) [[unlikely]] {
    throw_gradient(optimizer, param, grad, what());
  }
}

[[noreturn]] void throw_buffer(std::string_view optimizer, const at::Tensor& param, const at::Tensor& buffer,
                               const char* key, const std::string& what);

/// Checks that a buffer followed its parameter: `model.to(device)` after the first update leaves it behind.
template <class Describe>
void check_buffer(std::string_view optimizer, const at::Tensor& param, const at::Tensor& buffer, const char* key,
                  Describe&& what) {
  if (buffer.device() != param.device() || buffer.scalar_type() != param.scalar_type() ||
      buffer.sizes() != param.sizes()) [[unlikely]] {
    throw_buffer(optimizer, param, buffer, key, what());
  }
}

/// The fused kernels access raw memory: they are correct only for dense tensors of one layout and one dtype, which they
/// do not check. They may update the parameters of a list in parallel, hence not those that share memory.
inline bool fusable(FusedKernel kernel, const Slot& slot, const at::Tensor& grad) {
  const at::Tensor& param = slot.param;
  return !slot.overlaps && is_usable(kernel, param.device(), param.scalar_type()) &&
         param.is_non_overlapping_and_dense() && grad.scalar_type() == param.scalar_type() &&
         grad.strides() == param.strides();
}

/// The gradient for the plain path: divided in place, in the dtype of the parameter.
at::Tensor plain_gradient(const at::Tensor& param, at::Tensor grad, double grad_divisor);
at::Tensor plain_gradient(const at::Tensor& param, at::Tensor grad, const DeviceScale& scale);

/// @throws ConfigError for a set option that is not in `defaults`; returns `options` with unset ones from there.
OptimizerOptions complete(std::string_view optimizer, OptimizerOptions options, const OptimizerOptions& defaults);

}  // namespace danling::inline v0::optim::detail
