// Batches of sequences of unequal length, without padding.
#pragma once

#include <vector>

#include <danling/data/batch.hpp>
#include <danling/data/sample.hpp>

namespace danling::inline v0::data {

/// Collates inputs [L, ...] of different lengths L to one NestedTensor [N, L, ...]. Nests targets too if all are as
/// long as their inputs, else stacks them. The runner weights a batch with nested targets by the targets that the
/// criterion does not ignore. Nests tensors in `extra` if they are as long as their inputs or their sizes differ, else
/// stacks them; collates the rest as `collate`.
///
/// A target of 3 numbers per sample is nested in a batch in which all inputs have 3 tokens, and stacked in others.
/// @throws CollateError as `collate`.
Batch collate_nested(std::vector<Sample> samples);

}  // namespace danling::inline v0::data
