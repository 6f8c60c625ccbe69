// The options of a NestedTensor, applied.
#pragma once

#include <danling/tensors/nested_tensor.hpp>

#include "tensors/nested/impl.hpp"

namespace danling::inline v0::detail {

/// A structure without sizes.
Structure structure_of(const NestedTensorOptions& options);
/// `ragged_dims` of the options, or the dimensions along which the shapes differ, or else the first.
/// @throws DataError when the shapes do not allow it
c10::DimVector choose_ragged_dims(const std::vector<std::vector<std::int64_t>>& shapes,
                                  const NestedTensorOptions& options, const char* where);
/// The nested tensor with the options that concern its values.
at::Tensor with_options(at::Tensor tensor, const NestedTensorOptions& options);

}  // namespace danling::inline v0::detail
