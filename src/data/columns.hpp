// Text of a batch: the result of collating one text, or bytes, per sample.
#pragma once

#include <algorithm>

#include <danling/state/state.hpp>

namespace danling::inline v0::data::detail {

/// True for a list of text or bytes, one per sample.
inline bool is_column(const State& tree) {
  return tree.is_list() && !tree.items().empty() &&
         std::all_of(tree.items().begin(), tree.items().end(),
                     [](const State& item) { return item.is_string() || item.is_bytes(); });
}

}  // namespace danling::inline v0::data::detail
