// Batches of sequences of unequal length, padded to the longest.
#pragma once

#include <cstdint>
#include <vector>

#include <danling/data/batch.hpp>
#include <danling/data/sample.hpp>

namespace danling::inline v0::data {

struct PaddingOptions {
  /// Padding value of inputs.
  double value = 0.0;
  /// Padding value of targets; by default the `ignore_index` of LibTorch's losses.
  double target_value = -100.0;
  /// Rounds lengths up to a multiple of this, for tensor cores and compiled graphs.
  std::int64_t multiple_of = 1;
};

/// Inputs [L, ...] of unequal L become one of [N, longest L, ...], `extra` gets `lengths` (int64 [N]) and `mask` (bool
/// [N, longest L], true where there is data). Targets that have the length of their inputs are padded too, and
/// `loss_normalizer` is then the number of integers that are not `target_value`, or of all entries along the length of
/// other types; other targets are stacked, and `extra` is
/// collated as by `collate`. The batch is on the samples' device. Call it in the `collate` of a dataset or of a type of
/// sample.
/// @throws CollateError as `collate`, and where samples already have a `lengths` or `mask`.
Batch collate_padded(std::vector<Sample> samples, const PaddingOptions& options = {});

}  // namespace danling::inline v0::data
