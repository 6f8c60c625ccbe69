// Which labels count.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::metrics::detail {

/// Whether each of `labels` differs from `ignore_index`, as bool; no wait. LibTorch's `ne` first converts the number to
/// the labels' type: in uint8 it ignores 156 for -100. Here all labels of a type that cannot hold the number count.
at::Tensor not_ignored(const at::Tensor& labels, std::int64_t ignore_index);

}  // namespace danling::inline v0::metrics::detail
