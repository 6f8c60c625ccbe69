// Compares states by value, since sums over other numbers of processes round differently.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <danling/state/state.hpp>

#include "verify_resume_layouts.hpp"

namespace danling_command {

/// The allowed differences between two runs.
struct ValueRules {
  std::optional<Tolerance> tolerance = {};  ///< tolerance of numbers; unset: bits must be equal
  /// Config keys that the layouts set. If there are any, axes and generators of processes in checkpoints may differ
  /// too.
  std::vector<std::string> keys = {};
};

/// Removes `key`, such as `parallel.axes.tensor`, from a tree, and maps that become empty.
template <class Tree>
void erase_key(Tree& tree, const std::string& key) {
  const auto dot = key.find('.');
  if (!tree.is_map()) {
    return;
  }
  if (dot == std::string::npos) {
    tree.map().erase(key);
    return;
  }
  const std::string first = key.substr(0, dot);
  if (auto* below = tree.map().find(first)) {
    erase_key(*below, key.substr(dot + 1));
    if (below->is_map() && below->map().empty()) {
      tree.map().erase(first);
    }
  }
}

/// Returns the path and both values of the first difference, or an empty string. Compares floating-point and complex
/// numbers with the tolerance; everything else must be equal, except the order of keys.
std::string value_difference(const danling::State& a, const danling::State& b, const Tolerance& tolerance);

}  // namespace danling_command
