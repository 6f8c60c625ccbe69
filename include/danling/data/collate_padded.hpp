// Batches of sequences of unequal length, padded to the longest.
#pragma once

#include <cstdint>
#include <vector>

#include <danling/data/batch.hpp>
#include <danling/data/sample.hpp>

namespace danling::inline v0::data {

struct PaddingOptions {
  /// Stands behind the end of an input.
  double value = 0.0;
  /// Stands behind the end of a target; by default what LibTorch's losses ignore.
  double target_value = -100.0;
  /// Lengths are rounded up to a multiple of this, which tensor cores and compiled graphs like.
  std::int64_t multiple_of = 1;
};

/// Inputs [L, ...] of unequal L become one of [N, longest L, ...], `extra` gets `lengths` (int64 [N]) and `mask` (bool
/// [N, longest L], true where there is data). Targets that have the length of their inputs are padded too, and
/// `loss_normalizer` is then the number of all their elements along it; other targets are stacked, and what else
/// samples have is collated as `collate` does. Made in the memory of the CPU or the device that the samples are on.
/// Call it in the `collate` of a dataset or of a type of sample.
/// @throws CollateError as `collate`, and where samples bring a `lengths` or `mask` of their own.
Batch collate_padded(std::vector<Sample> samples, const PaddingOptions& options = {});

}  // namespace danling::inline v0::data
