// Which labels are to be counted.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::metrics::detail {

/// Where `labels` are not `ignore_index`, bool; no wait. LibTorch's `ne` turns the number into the labels' type first:
/// in uint8 it takes 156 for -100. Here labels of a type that cannot hold the number are all counted.
at::Tensor not_ignored(const at::Tensor& labels, std::int64_t ignore_index);

}  // namespace danling::inline v0::metrics::detail
