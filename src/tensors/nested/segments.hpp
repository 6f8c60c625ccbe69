// Groups of rows that reduce to one row each: the sequences of a batch, as a rule.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tensors/nested/impl.hpp"

namespace danling::inline v0::detail {

/// Values of a sequence from which a call of LibTorch costs less than another pass over memory on the CPU.
inline constexpr std::int64_t values_for_a_call = 4096;

struct Segments {
  at::Tensor index;                  ///< of each row: int64, on the device of the rows
  std::vector<std::int64_t> counts;  ///< rows of each
  bool contiguous = false;           ///< the rows of a segment are neighbours, in the order of the segments

  std::int64_t size() const { return static_cast<std::int64_t>(counts.size()); }
  bool has_empty() const;
  /// (size, 1...) of `dim` dimensions.
  at::Tensor counts_like(const at::Tensor& reduced) const;
  /// Each row as `times` rows.
  Segments repeated(std::int64_t times) const;
};

/// One segment for each element.
Segments segments_of(const Structure& structure, at::Device device);

// (rows, ...) to (segments, ...). Differentiable, twice too. Sums of float16 and bfloat16 are made in float.

at::Tensor segment_sum(const at::Tensor& values, const Segments& segments);
/// Gradients are shared by equal values. NaN where a segment has one, infinite or the type's limit where it is empty.
at::Tensor segment_amax(const at::Tensor& values, const Segments& segments);
at::Tensor segment_amin(const at::Tensor& values, const Segments& segments);
at::Tensor segment_logsumexp(const at::Tensor& values, const Segments& segments);

/// Of each row's segment.
at::Tensor segment_softmax(const at::Tensor& values, const Segments& segments);
at::Tensor segment_log_softmax(const at::Tensor& values, const Segments& segments);

}  // namespace danling::inline v0::detail
