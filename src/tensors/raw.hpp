// Memory that a loop may read as it is.
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

}  // namespace danling::inline v0::tensors
