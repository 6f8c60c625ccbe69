// Describes parameters of which each rank holds a slice: the position of the slice in the whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::parallel {

/// A range of one dimension of a parameter, on one rank of an axis.
struct Slice {
  std::string axis;         ///< axis of the topology: "tensor", "expert", "expert_tensor"
  std::int64_t dim = 0;     ///< dimension of the parameter
  std::int64_t size = 0;    ///< size of the whole parameter along `dim`
  std::int64_t offset = 0;  ///< start of this rank's part, whose length is that of the tensor
};

/// Records that `parameter` is a slice of a whole, for checkpoints, gradient norms and optimizers. Layers that slice
/// their parameters call it; the record lives as long as the parameter. @throws ConfigError for a slice outside the
/// whole, and for a second slice along the same axis or dimension
void set_slices(const at::Tensor& parameter, std::vector<Slice> slices);
/// Returns the slices; empty if every rank has the whole parameter. Thread-safe.
std::vector<Slice> slices_of(const at::Tensor& parameter);

}  // namespace danling::inline v0::parallel
