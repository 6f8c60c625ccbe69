// The keys of DanLing whose features do not exist here: known, so that setting one is refused by name.
#pragma once

#include <vector>

#include <danling/config/tree.hpp>

namespace danling::inline v0::detail {

/// By the section that lists them; `logging` and `process` stand at the top level.
struct ReservedKeys {
  std::vector<ReservedKey> optim, sched, checkpoint, logging, process;
};
const ReservedKeys& reserved_keys();

inline void reserve(Fields& f, const std::vector<ReservedKey>& keys) {
  for (const auto& key : keys) {
    f.reserved(key);
  }
}

}  // namespace danling::inline v0::detail
