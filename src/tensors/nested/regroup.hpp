// Batches of which each element becomes several of its sizes, and back: sequences and their heads.
#pragma once

#include "tensors/nested/part_rows.hpp"
#include "tensors/nested/ragged.hpp"

namespace danling::inline v0::detail {

/// Element b becomes the elements b * parts + 0, 1, ... Made once for each `ragged` and number.
RaggedPtr split_elements(const RaggedPtr& ragged, std::int64_t parts);
/// The inverse; null when elements that would become one have different sizes.
RaggedPtr merge_elements(const RaggedPtr& ragged, std::int64_t parts);

}  // namespace danling::inline v0::detail
