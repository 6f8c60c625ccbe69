// Conversion of C++ values to trees and back: tensors, numbers, strings and standard containers of them.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/state/state.hpp>
#include <danling/tensors/detail/entries.hpp>

namespace danling::inline v0::detail {

template <class T>
struct Growing : std::bool_constant<Plain<T> && !std::same_as<T, std::vector<bool>> && !std::is_enum_v<T>> {};
template <>
struct Growing<at::Tensor> : std::true_type {};
template <>
struct Growing<State> : std::true_type {};
template <class T>
  requires(Container<T> && (!Mapping<T> || NamedParts<T>))
struct Growing<T> : std::bool_constant<all_parts<typename PartsOf<T>::type, Growing>> {};

/// Types that `to_tree` accepts.
template <class T>
concept TreeValue = Growing<T>::value;

/// Converts a mapping to a map; a tuple, pair or array to a tuple; a vector to a list; an optional to its value or
/// null.
template <TreeValue T>
State to_tree(const T& value) {
  if constexpr (NamedParts<T>) {
    State::Map map;
    for (const auto& [name, part] : value) {
      map.set(name, to_tree(part));
    }
    return map;
  } else if constexpr (requires { value.has_value(); } && Container<T>) {
    return value ? to_tree(*value) : State();
  } else if constexpr (Container<T>) {
    State::List items;
    each_part(value, [&](const auto& part) { items.push_back(to_tree(part)); });
    if constexpr (TupleLike<T>) {
      return State::Tuple{std::move(items)};
    } else {
      return items;
    }
  } else {
    return value;
  }
}

/// Standard types that `read_tree` can fill.
template <class T>
concept ReadsTree = Plain<T> || std::same_as<T, at::Tensor> || std::same_as<T, State> || Container<T>;

template <class T>
bool read_number(const State& tree, T& out) {
  if constexpr (std::same_as<T, bool>) {
    out = tree.is_bool() && tree.boolean();
    return tree.is_bool();
  } else if constexpr (std::integral<T>) {
    const bool fits = tree.is_integer() && std::in_range<T>(tree.integer());
    out = fits ? static_cast<T>(tree.integer()) : T();
    return fits;
  } else {
    const bool fits = tree.is_double() || tree.is_integer();
    out = fits ? static_cast<T>(tree.number()) : T();
    return fits;
  }
}

/// Reads the tree into `out`; returns false if a part has another kind. Fills a tuple from a map's values in order.
/// Constructs a user's type from a State.
template <class T>
bool read_tree(const State& tree, T& out) {
  if constexpr (std::same_as<T, State>) {
    out = tree;
    return true;
  } else if constexpr (std::same_as<T, at::Tensor>) {
    out = tree.is_tensor() ? tree.tensor() : at::Tensor();
    return tree.is_tensor() || tree.is_null();
  } else if constexpr (std::is_arithmetic_v<T>) {
    return read_number(tree, out);
  } else if constexpr (std::same_as<T, std::string>) {
    out = tree.is_string() ? tree.string() : std::string();
    return tree.is_string();
  } else if constexpr (NamedParts<T>) {
    bool fits = tree.is_map();
    for (const auto& [name, part] : fits ? tree.map() : State::Map()) {
      fits = fits && name.is_string() && read_tree(part, out[name.string()]);
    }
    return fits;
  } else if constexpr (TupleLike<T>) {
    State::List items;
    if (tree.is_map()) {
      for (const auto& entry : tree.map()) {
        items.push_back(entry.value);
      }
    } else if (tree.is_list() || tree.is_tuple()) {
      items = tree.items();
    }
    std::size_t i = 0;
    bool fits = items.size() == std::tuple_size_v<T>;
    each_part(out, [&](auto& part) { fits = fits && read_tree(items[i++], part); });
    return fits;
  } else if constexpr (Container<T> && requires { out.has_value(); }) {
    return tree.is_null() || read_tree(tree, out.emplace());
  } else if constexpr (Container<T> && !Mapping<T>) {
    bool fits = tree.is_list() || tree.is_tuple();
    for (const State& item : fits ? tree.items() : State::List()) {
      fits = fits && read_tree(item, out.emplace_back());
    }
    return fits;
  } else if constexpr (std::constructible_from<T, const State&> && std::assignable_from<T&, T>) {
    out = T(tree);
    return true;
  } else {
    return false;
  }
}

/// Returns the tree as a `T`, or nullopt if it has another kind.
template <class T>
std::optional<T> from_tree(const State& tree) {
  std::optional<T> out;
  if constexpr (!ReadsTree<T> && std::constructible_from<T, const State&>) {
    out.emplace(tree);
  } else if constexpr (std::default_initializable<T>) {
    if (!read_tree(tree, out.emplace())) {
      out.reset();
    }
  }
  return out;
}

}  // namespace danling::inline v0::detail
