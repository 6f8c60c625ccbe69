// Plain tensors beside packed values.
#pragma once

#include <optional>

#include "tensors/nested/call.hpp"

namespace danling::inline v0::detail {

/// A plain tensor, which broadcasts to the dimensions of the nested one, as one that broadcasts to its values. Along a
/// ragged dimension it has size 1 or that of the padded tensor, whose padding is left out.
/// @throws DataError with the shapes when it does not broadcast
at::Tensor broadcast_to_values(Call& call, const at::Tensor& tensor, const NestedTensorImpl& to);

/// The same for a nested one that has size 1 along some of the ragged dimensions, as reductions with `keepdim` leave
/// it; nothing when the sizes do not fit.
std::optional<at::Tensor> broadcast_nested_to_values(const at::Tensor& tensor, const NestedTensorImpl& to);

}  // namespace danling::inline v0::detail
