// Compares states by their values, where bits differ: sums over other numbers of processes have other roundings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <danling/state/state.hpp>

#include "verify_resume_layouts.hpp"

namespace danling_command {

/// Differences between two runs that are allowed.
struct ValueRules {
  std::optional<Tolerance> tolerance = {};  ///< of numbers; without it their bits must be equal
  /// Keys of the config that the layouts set; with them the checkpoints' axes and generators of processes differ too.
  std::vector<std::string> keys = {};
};

/// Removes `key`, such as `parallel.axes.tensor`, from a tree, and maps that are empty then.
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

/// The path and the two values of the first difference, or an empty string. Numbers and elements of tensors of
/// floating-point or complex types are compared with the tolerance, everything else must be equal; keys may have
/// another order.
std::string value_difference(const danling::State& a, const danling::State& b, const Tolerance& tolerance);

}  // namespace danling_command
