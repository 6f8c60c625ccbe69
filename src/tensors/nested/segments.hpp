// Groups of rows that reduce to one row each: usually the sequences of a batch.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tensors/nested/impl.hpp>

namespace danling::inline v0::detail {

/// From this number of values per sequence, one LibTorch call is cheaper than another pass over memory on the CPU.
inline constexpr std::int64_t values_for_a_call = 4096;

struct Segments {
  at::Tensor index;                  ///< segment of each row: int64, on the device of the rows
  std::vector<std::int64_t> counts;  ///< rows per segment
  bool contiguous = false;           ///< rows of a segment are adjacent, in segment order

  std::int64_t size() const { return static_cast<std::int64_t>(counts.size()); }
  bool has_empty() const;
  /// Returns the counts as (size, 1...), with the rank of `reduced`.
  at::Tensor counts_like(const at::Tensor& reduced) const;
  /// Repeats each row `times` times.
  Segments repeated(std::int64_t times) const;
};

/// One segment for each element.
Segments segments_of(const Structure& structure, at::Device device);

// (rows, ...) to (segments, ...). Twice differentiable. float16 and bfloat16 are summed in float.

at::Tensor segment_sum(const at::Tensor& values, const Segments& segments);
/// Equal values share the gradient. NaN if a segment contains one; infinity or the type's limit for an empty segment.
at::Tensor segment_amax(const at::Tensor& values, const Segments& segments);
at::Tensor segment_amin(const at::Tensor& values, const Segments& segments);
at::Tensor segment_logsumexp(const at::Tensor& values, const Segments& segments);

/// Softmax over the segment of each row.
at::Tensor segment_softmax(const at::Tensor& values, const Segments& segments);
at::Tensor segment_log_softmax(const at::Tensor& values, const Segments& segments);

}  // namespace danling::inline v0::detail
