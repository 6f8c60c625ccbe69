// TextTraits: formats and parses values of a type, for configs and messages.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace danling::inline v0 {

/// Allows a type in fields of a config. An enum with the values 0, 1, 2... needs a function in its namespace:
///
///     constexpr auto names_of(Color) { return std::to_array<std::string_view>({"red", "green"}); }
///
/// For any other type, specialise TextTraits with the static members `std::string format(const T&)`, `std::optional<T>
/// parse(const std::string&)` and `std::string_view expected`. `expected` is for messages about text that `parse`
/// refuses: "a device such as cpu or cuda:0".
template <class T>
struct TextTraits;

template <class E>
  requires std::is_enum_v<E> && requires(E value) { names_of(value); }
struct TextTraits<E> {
  static constexpr auto names = names_of(E());
  static constexpr std::string_view format(E value) {
    const auto at = static_cast<std::size_t>(value);
    return at < names.size() ? names[at] : "unknown";
  }
  static std::optional<E> parse(const std::string& text) {
    for (std::size_t at = 0; at < names.size(); ++at) {
      if (names[at] == text) return static_cast<E>(at);
    }
    return std::nullopt;
  }
};

}  // namespace danling::inline v0
