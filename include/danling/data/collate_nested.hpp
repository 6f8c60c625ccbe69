// Batches of sequences of unequal length, without padding.
#pragma once

#include <vector>

#include <danling/data/batch.hpp>
#include <danling/data/sample.hpp>

namespace danling::inline v0::data {

/// Collates inputs [L, ...] of different lengths L to one NestedTensor [N, L, ...], and so targets that are as long as
/// their inputs; the runner then weights the batch by the targets that the criterion does not ignore. Stacks other
/// targets.
/// Nests tensors in `extra` if they are as long as their inputs or their sizes differ, else stacks them; collates the
/// rest as `collate`. Note: if all inputs of a batch have 3 tokens, a target of 3 numbers counts as long as its input.
/// @throws CollateError as `collate`.
Batch collate_nested(std::vector<Sample> samples);

}  // namespace danling::inline v0::data
