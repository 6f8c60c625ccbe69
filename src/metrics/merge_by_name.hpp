// Merging of metric lists by name.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {

/// DanLing's merge of positional and keyword arguments: of unnamed entries with the same name the first stays; a named
/// entry (`named`) replaces the entry of that name, or is appended.
/// @throws MetricError when a given name is repeated.
template <class Entry, class NameOf>
std::vector<Entry> merge_by_name(std::vector<Entry> entries, NameOf name_of) {
  std::vector<Entry> merged;
  for (const bool named : {false, true}) {
    for (Entry& entry : entries) {
      if (entry.named != named) {
        continue;
      }
      const auto known = std::find_if(merged.begin(), merged.end(),
                                      [&](const Entry& other) { return name_of(other) == name_of(entry); });
      if (known == merged.end()) {
        merged.push_back(std::move(entry));
      } else if (named) {
        check<MetricError>(!known->named, "metrics.create", "expected each name once, got ", quote(name_of(entry)),
                           " twice");
        *known = std::move(entry);
      }
    }
  }
  return merged;
}

}  // namespace danling::inline v0::detail
