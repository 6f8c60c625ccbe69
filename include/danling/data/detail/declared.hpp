// Declarations of datasets and streams (split, train, batch size, workers) and their defaults.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include <danling/data/datum.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data::detail {

/// Returns the loader defaults of `object.loader_defaults()`, else of its `datum_type`, else of `S`; empty for void.
template <class T, class S>
LoaderDefaults datum_defaults_of(const T& object) {
  if constexpr (requires {
                  { object.loader_defaults() } -> std::same_as<LoaderDefaults>;
                }) {
    return object.loader_defaults();
  } else if constexpr (requires { typename T::datum_type; }) {
    return declared_defaults<typename T::datum_type>();
  } else if constexpr (!std::is_void_v<S>) {
    return declared_defaults<S>();
  } else {
    return {};
  }
}

template <class T>
std::string split_of(const T& object) {
  if constexpr (requires {
                  { object.split() } -> std::convertible_to<std::string>;
                }) {
    return object.split();
  } else {
    return {};
  }
}

template <class T>
bool train_of(const T& object) {
  if constexpr (requires {
                  { object.train() } -> std::convertible_to<bool>;
                }) {
    return object.train();
  } else {
    return split_of(object) == "train";
  }
}

template <class T>
State source_info_of(const T& object, std::int64_t index) {
  if constexpr (requires {
                  { object.source_info(index) } -> std::convertible_to<State>;
                }) {
    return object.source_info(index);
  } else {
    return {};
  }
}

template <class T>
std::optional<std::string> entry_key_of(const T& object, std::int64_t index) {
  if constexpr (requires {
                  { object.entry_key(index) } -> std::convertible_to<std::optional<std::string>>;
                }) {
    return object.entry_key(index);
  } else {
    return std::nullopt;
  }
}

}  // namespace danling::inline v0::data::detail
