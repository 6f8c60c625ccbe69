// Broadcasting of tensors to packed values.
#pragma once

#include <optional>

#include <tensors/nested/call.hpp>

namespace danling::inline v0::detail {

/// Converts a plain tensor that broadcasts to the nested one to a tensor that broadcasts to its values. Along a ragged
/// dimension its size is 1 or that of the padded tensor, whose padding is dropped.
/// @throws DataError with the shapes when it does not broadcast
at::Tensor broadcast_to_values(Call& call, const at::Tensor& tensor, const NestedTensorImpl& to);

/// As broadcast_to_values for a nested tensor with size 1 along some ragged dimensions, as from reductions with
/// `keepdim`; nullopt if the sizes do not fit.
std::optional<at::Tensor> broadcast_nested_to_values(const at::Tensor& tensor, const NestedTensorImpl& to);

}  // namespace danling::inline v0::detail
