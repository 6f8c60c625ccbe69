// Batches of which each element becomes several of its sizes, and back: sequences and their heads.
#pragma once

#include "tensors/nested/ragged.hpp"
#include "tensors/nested/rows.hpp"

namespace danling::inline v0::detail {

/// Element b becomes the elements b * parts + 0, 1, ... The order leads from (row, part) of the whole elements to rows
/// of the parts. Made once for each `ragged` and number.
Ragged::Related split_elements(const RaggedPtr& ragged, std::int64_t parts);
/// The inverse, whose order is to be undone; null when elements that would become one have different sizes.
Ragged::Related merge_elements(const RaggedPtr& ragged, std::int64_t parts);

}  // namespace danling::inline v0::detail
