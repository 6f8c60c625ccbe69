// Masks of counted labels.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// Returns a bool mask of the `labels` that differ from `ignore_index`, without waiting. LibTorch's `ne` would first
/// convert the number to the labels' dtype: in uint8, -100 would ignore 156. Here, labels of a dtype that cannot hold
/// the number all count.
at::Tensor not_ignored(const at::Tensor& labels, std::int64_t ignore_index);

}  // namespace danling::inline v0::detail
