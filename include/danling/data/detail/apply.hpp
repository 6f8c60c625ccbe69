// Calls users' functions on samples and batches, with or without `info`.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

namespace danling::inline v0::data::detail {

template <class F, class V, class Info>
concept MapsInformed = std::invocable<const F&, V, const Info&>;
template <class F, class V, class Info>
concept Maps = MapsInformed<F, V, Info> || std::invocable<const F&, V>;

/// Calls `function(value, info)`, or `function(value)` if it does not take `info`.
template <class V, class F, class Info>
auto apply_to(const F& function, V value, const Info& info) {
  if constexpr (MapsInformed<F, V, Info>) {
    return std::invoke(function, std::move(value), info);
  } else {
    return std::invoke(function, std::move(value));
  }
}
/// The same with unrelated random keys, for a function above `layer` nested random functions.
template <class V, class F, class Info>
auto apply_above(std::int64_t layer, const F& function, V value, const Info& info) {
  if constexpr (MapsInformed<F, V, Info>) {
    return layer == 0 ? apply_to<V>(function, std::move(value), info)
                      : apply_to<V>(function, std::move(value), info.at_layer(layer));
  } else {
    return apply_to<V>(function, std::move(value), info);
  }
}
template <class F, class V, class Info>
using mapped = decltype(apply_to<V>(std::declval<const F&>(), std::declval<V>(), std::declval<const Info&>()));

/// True if the function returns a value, or if it does not accept `value`, which another check reports.
template <class F, class V, class Info>
concept MapsToSample = !Maps<F, V, Info> || std::movable<mapped<F, V, Info>>;

}  // namespace danling::inline v0::data::detail
