// The two kernels of segments. On the CPU, loops over rows, because LibTorch's index kernels make a call per row and
// sum bfloat16 in bfloat16. On other devices and for other types, LibTorch's index kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <tensors/nested/segments.hpp>

namespace danling::inline v0::detail {

enum class SegmentOp { sum, max, min };

bool has_segment_loop(at::ScalarType type);
/// Reduces (rows, ...) on the CPU to (segments, ...); `initial` for empty segments. Not differentiable.
at::Tensor loop_over_segments(const at::Tensor& values, const Segments& segments, SegmentOp op,
                              const at::Scalar& initial);

at::Tensor reduce_by_index(const at::Tensor& values, const Segments& segments, SegmentOp op, const at::Scalar& initial);
/// Returns the result for an empty segment.
at::Scalar initial_of(SegmentOp op, at::ScalarType type);

}  // namespace danling::inline v0::detail
