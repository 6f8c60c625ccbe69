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
  /// Rounds lengths up to a multiple of this number, for tensor cores and compiled graphs.
  std::int64_t multiple_of = 1;
};

/// Pads inputs [L, ...] of different lengths L to one tensor [N, longest L, ...]. Adds `lengths` (int64 [N]) and `mask`
/// (bool [N, longest L], true for data) to `extra`. Pads targets as long as their inputs too, and sets
/// `loss_normalizer` to the number of integers that differ from `target_value` (for other dtypes: to the number of
/// entries along the length); stacks other targets. Collates `extra` as `collate`. Sets `num_tokens` to the sum of the
/// lengths. The batch is on the samples' device. Call it in the `collate` of a dataset or sample type.
/// @throws CollateError as `collate`, and when samples already have `lengths` or `mask`. ConfigError for a
/// `multiple_of` below 1, DataError without samples and for a padding value that the dtype cannot represent.
Batch collate_padded(std::vector<Sample> samples, const PaddingOptions& options = {});

}  // namespace danling::inline v0::data
