// Memory that a loop may read as it is, and copies that may be read at once.
#pragma once

#include <ATen/core/Tensor.h>

namespace danling::inline v0::tensors {

/// The tensor in contiguous memory that holds its values: `contiguous()` keeps a pending negation, as the imaginary
/// part of a conjugate has it, and a pending conjugation.
inline at::Tensor raw(const at::Tensor& tensor) {
  if (tensor.is_neg() || tensor.is_conj()) [[unlikely]] {
    return tensor.resolve_conj().resolve_neg().contiguous();
  }
  return tensor.contiguous();
}

/// The tensor on `device`, and of `dtype`. A copy to a device does not wait; one to the host does, because the host
/// could otherwise read it before it arrives.
inline at::Tensor moved(const at::Tensor& tensor, at::Device device) {
  return tensor.to(device, /*non_blocking=*/!device.is_cpu());
}
inline at::Tensor moved(const at::Tensor& tensor, at::Device device, at::ScalarType dtype) {
  return tensor.to(device, dtype, /*non_blocking=*/!device.is_cpu());
}

}  // namespace danling::inline v0::tensors
