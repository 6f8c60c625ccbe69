// Batches of sequences of unequal length, without padding.
#pragma once

#include <vector>

#include <danling/data/batch.hpp>
#include <danling/data/sample.hpp>

namespace danling::inline v0::data {

/// Inputs [L, ...] of unequal L become one NestedTensor of [N, L, ...], and so do targets that have the length of their
/// inputs; `loss_normalizer` is then the number of their elements. Other targets are stacked. Tensors in `extra` are
/// nested where their sizes differ, else stacked; the rest of it is collated as by `collate`.
/// @throws CollateError as `collate`.
Batch collate_nested(std::vector<Sample> samples);

}  // namespace danling::inline v0::data
