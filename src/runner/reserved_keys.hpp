// Reserved keys: DanLing's keys without a feature here. Setting one throws an error that names the feature.
#pragma once

#include <vector>

#include <danling/config/tree.hpp>

namespace danling::inline v0::detail {

/// By section; `process` is at the top level.
struct ReservedKeys {
  std::vector<ReservedKey> optim, checkpoint, process, parallel, fsdp, compile;
};
const ReservedKeys& reserved_keys();

inline void reserve(Fields& f, const std::vector<ReservedKey>& keys) {
  for (const auto& key : keys) {
    f.reserved(key);
  }
}

}  // namespace danling::inline v0::detail
