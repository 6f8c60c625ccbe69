// The two kernels of segments. Loops over rows on the CPU: LibTorch's kernels by index take a call per row there, and
// sum bfloat16 in bfloat16. Kernels by index on other devices, and for types without a loop.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include "tensors/nested/segments.hpp"

namespace danling::inline v0::detail {

enum class SegmentOp { sum, max, min };

bool has_segment_loop(at::ScalarType type);
/// (rows, ...) on the CPU to (segments, ...); `initial` for empty segments. Not differentiable.
at::Tensor loop_over_segments(const at::Tensor& values, const Segments& segments, SegmentOp op,
                              const at::Scalar& initial);

at::Tensor reduce_by_index(const at::Tensor& values, const Segments& segments, SegmentOp op, const at::Scalar& initial);
/// The result of an empty segment.
at::Scalar initial_of(SegmentOp op, at::ScalarType type);

}  // namespace danling::inline v0::detail
