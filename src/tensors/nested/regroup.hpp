// Splits each element of a batch into several elements of the same sizes, and merges them: sequences and their heads.
#pragma once

#include <tensors/nested/part_rows.hpp>
#include <tensors/nested/ragged.hpp>

namespace danling::inline v0::detail {

/// Splits element b into the elements b * parts + 0, 1, ... Cached for each `ragged` and number.
RaggedPtr split_elements(const RaggedPtr& ragged, std::int64_t parts);
/// The inverse; null if elements to be merged have different sizes.
RaggedPtr merge_elements(const RaggedPtr& ragged, std::int64_t parts);

}  // namespace danling::inline v0::detail
