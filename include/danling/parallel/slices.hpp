// Parameters of which each rank of an axis holds a slice: where the slice lies in the whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::parallel {

/// A range of one dimension of a parameter, on one rank of an axis.
struct Slice {
  std::string axis;         ///< of the topology: "tensor", "expert", "expert_tensor"
  std::int64_t dim = 0;     ///< of the parameter
  std::int64_t size = 0;    ///< of the whole along `dim`
  std::int64_t offset = 0;  ///< where this rank's part begins; it has as many values as the tensor
};

/// Records that `parameter` is a slice of a whole, for checkpoints, gradient norms and optimizers. Layers that slice
/// their parameters call it; the record lives as long as the parameter. @throws ConfigError for a slice outside of the
/// whole, and for a second one along the same axis or dimension
void set_slices(const at::Tensor& parameter, std::vector<Slice> slices);
/// Empty: every rank has the whole. Safe in several threads.
std::vector<Slice> slices_of(const at::Tensor& parameter);

}  // namespace danling::inline v0::parallel
