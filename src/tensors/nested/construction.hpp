// The options of a NestedTensor, applied.
#pragma once

#include <danling/tensors/nested_tensor.hpp>

#include "tensors/nested/impl.hpp"

namespace danling::inline v0::detail {

/// A structure without sizes.
Structure structure_of(const NestedTensorOptions& options);
/// A structure without sizes, whose ragged dimensions are those of the options, or those along which the shapes differ,
/// or else the first.
/// @throws DataError when the shapes do not allow it
/// `empty_rank`: of the elements of an empty batch.
Structure structure_for(const std::vector<std::vector<std::int64_t>>& shapes, const NestedTensorOptions& options,
                        const char* where, std::size_t empty_rank = 1);
/// The nested tensor with the options that concern its values.
at::Tensor with_options(at::Tensor tensor, const NestedTensorOptions& options);

}  // namespace danling::inline v0::detail
