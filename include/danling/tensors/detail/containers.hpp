// Standard containers in samples and batches: the types of their parts, and access to the parts.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace danling::inline v0::detail {

template <class... Ts>
struct Types {};

/// The types of a container's parts; void if the type is not a container.
template <class T>
struct PartsOf {
  using type = void;
};
template <class T, class A>
  requires(!std::same_as<T, bool>)
struct PartsOf<std::vector<T, A>> {
  using type = Types<T>;
};
template <class T, std::size_t n>
struct PartsOf<std::array<T, n>> {
  using type = Types<T>;
};
template <class T>
struct PartsOf<std::optional<T>> {
  using type = Types<T>;
};
template <class... Ts>
struct PartsOf<std::tuple<Ts...>> {
  using type = Types<Ts...>;
};
template <class First, class Second>
struct PartsOf<std::pair<First, Second>> {
  using type = Types<First, Second>;
};
template <class K, class T, class C, class A>
struct PartsOf<std::map<K, T, C, A>> {
  using type = Types<T>;
};
template <class K, class T, class H, class E, class A>
struct PartsOf<std::unordered_map<K, T, H, E, A>> {
  using type = Types<T>;
};

template <class T>
concept Container = !std::is_void_v<typename PartsOf<T>::type>;

template <class T>
concept Mapping = Container<T> && requires { typename T::mapped_type; };
template <class T>
concept TupleLike = Container<T> && requires { std::tuple_size<T>::value; };

/// Values without device or samples: numbers and text.
template <class T>
concept Plain =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, std::string> || std::same_as<T, std::vector<bool>>;

/// True if `Test` holds for all parts of a container, or for any part.
template <class Parts, template <class> class Test>
inline constexpr bool all_parts = false;
template <class... Ts, template <class> class Test>
inline constexpr bool all_parts<Types<Ts...>, Test> = (Test<Ts>::value && ...);
template <class Parts, template <class> class Test>
inline constexpr bool any_part = false;
template <class... Ts, template <class> class Test>
inline constexpr bool any_part<Types<Ts...>, Test> = (Test<Ts>::value || ...);

/// Calls `visit` with each part, in order.
template <class C, class Visit>
  requires Container<std::remove_const_t<C>>
void each_part(C& container, const Visit& visit) {
  if constexpr (TupleLike<std::remove_const_t<C>>) {
    std::apply([&](auto&... parts) { (visit(parts), ...); }, container);
  } else if constexpr (Mapping<std::remove_const_t<C>>) {
    for (auto& entry : container) {
      visit(entry.second);
    }
  } else if constexpr (requires { container.has_value(); }) {
    if (container) {
      visit(*container);
    }
  } else {
    for (auto& part : container) {
      visit(part);
    }
  }
}

}  // namespace danling::inline v0::detail
