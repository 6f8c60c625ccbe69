// Applies the options of a NestedTensor.
#pragma once

#include <danling/tensors/nested_tensor.hpp>

#include <tensors/nested/impl.hpp>

namespace danling::inline v0::detail {

/// Returns a structure with the options, without sizes.
Structure structure_of(const NestedTensorOptions& options);
/// Returns a structure without sizes. Its ragged dimensions are those of the options, else those whose sizes differ,
/// else dimension 0.
/// @param empty_rank  rank of the elements of an empty batch
/// @throws DataError when the shapes do not allow the ragged dimensions
Structure structure_for(const std::vector<std::vector<std::int64_t>>& shapes, const NestedTensorOptions& options,
                        const char* where, std::size_t empty_rank = 1);
/// Applies the options dtype, device, pin_memory and requires_grad.
at::Tensor with_options(at::Tensor tensor, const NestedTensorOptions& options);

}  // namespace danling::inline v0::detail
