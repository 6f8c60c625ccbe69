// Access to entries of mappings and trees by name, and to parts of sequences by position.
#pragma once

#include <concepts>
#include <string>
#include <tuple>
#include <type_traits>

#include <danling/state/state.hpp>
#include <danling/tensors/detail/containers.hpp>

namespace danling::inline v0::detail {

/// A container whose keys are strings.
template <class T>
concept NamedParts = Mapping<T> && requires(const T& mapping, const std::string& name) { mapping.find(name); };
/// A tuple, pair or array.
template <class T>
concept ByPosition = requires(const T& parts) {
  requires std::tuple_size<T>::value >= 1;
  std::get<0>(parts);
};
/// A vector.
template <class T>
concept ByIndex = Container<T> && requires(const T& parts) {
  parts[0];
  parts.size();
};

/// Returns the entry `name` of a mapping; null if it is missing or the tree is not a map.
inline const State* entry_of(const State& tree, const Key& name) { return tree.is_map() ? tree.find(name) : nullptr; }
template <NamedParts T>
auto* entry_of(const T& mapping, const std::string& name) {
  const auto found = mapping.find(name);
  return found == mapping.end() ? nullptr : &found->second;
}

/// Returns part `index` of a list or tuple; null if it is out of range or the tree is neither.
inline const State* item_of(const State& tree, std::size_t index) {
  return (tree.is_list() || tree.is_tuple()) && index < tree.items().size() ? &tree.items()[index] : nullptr;
}

}  // namespace danling::inline v0::detail
