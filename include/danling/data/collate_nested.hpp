// Batches of sequences of unequal length, without padding.
#pragma once

#include <vector>

#include <danling/data/batch.hpp>
#include <danling/data/sample.hpp>

namespace danling::inline v0::data {

/// Inputs [L, ...] of unequal L become one NestedTensor of [N, L, ...], and so do targets that have the length of their
/// inputs; the runner then weighs the batch by those that the criterion does not ignore. Other targets are stacked.
/// Tensors in `extra` are nested where they have the length of their inputs, or sizes that differ, else stacked; the
/// rest of it is collated as by `collate`. In a batch whose inputs all have 3 tokens, a target of 3 numbers has the
/// length of its input.
/// @throws CollateError as `collate`.
Batch collate_nested(std::vector<Sample> samples);

}  // namespace danling::inline v0::data
