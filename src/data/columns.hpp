// Texts of a batch: the result of collating a text or bytes in each sample.
#pragma once

#include <algorithm>

#include <danling/state/state.hpp>

namespace danling::inline v0::data::detail {

/// A list of texts or bytes, one for each sample.
inline bool is_column(const State& tree) {
  return tree.is_list() && !tree.items().empty() &&
         std::all_of(tree.items().begin(), tree.items().end(),
                     [](const State& item) { return item.is_string() || item.is_bytes(); });
}

}  // namespace danling::inline v0::data::detail
