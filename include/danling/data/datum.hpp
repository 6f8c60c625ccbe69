// Optional declarations of a sample type: its name, loader defaults, and creation by name. (t3w: IDatum.)
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <danling/core/format.hpp>

namespace danling::inline v0::data {

/// Loader defaults of a sample type, declared as `static constexpr std::int64_t train_batch_size`, `val_batch_size` and
/// `num_workers`; the config overrides them.
struct LoaderDefaults {
  std::optional<std::int64_t> train_batch_size = {};
  std::optional<std::int64_t> val_batch_size = {};
  std::optional<std::int64_t> num_workers = {};
};

/// Base of sample types with t3w's defaults (IDatum), unless they declare others. Without it, the default batch size is
/// 1, as in DanLing.
struct Datum {
  static constexpr std::int64_t train_batch_size = 2;
  static constexpr std::int64_t val_batch_size = 2;
  static constexpr std::int64_t num_workers = 0;
};

template <class S>
constexpr LoaderDefaults declared_defaults() {
  LoaderDefaults out;
  if constexpr (requires {
                  { S::train_batch_size } -> std::convertible_to<std::int64_t>;
                }) {
    out.train_batch_size = S::train_batch_size;
  }
  if constexpr (requires {
                  { S::val_batch_size } -> std::convertible_to<std::int64_t>;
                }) {
    out.val_batch_size = S::val_batch_size;
  }
  if constexpr (requires {
                  { S::num_workers } -> std::convertible_to<std::int64_t>;
                }) {
    out.num_workers = S::num_workers;
  }
  return out;
}

namespace detail {
template <class U>
std::optional<std::string> uuid_text(const U& uuid) {
  if constexpr (requires {
                  { uuid.has_value() } -> std::same_as<bool>;
                }) {
    return uuid ? uuid_text(*uuid) : std::nullopt;
  } else {
    return danling::detail::concat(uuid);
  }
}

template <class S>
concept UuidFunction = requires(const S& sample) { uuid_text(sample.uuid()); };
template <class S>
concept UuidMember = !UuidFunction<S> && requires(const S& sample) { uuid_text(sample.uuid); };
}  // namespace detail

/// Has a member `uuid`, or a function `uuid() const`: text or a number, or an optional one.
template <class S>
concept HasUuid = detail::UuidFunction<S> || detail::UuidMember<S>;

/// Returns the permanent name of a sample as text; nullopt if it has none.
template <class S>
std::optional<std::string> uuid_of(const S& sample) {
  if constexpr (detail::UuidFunction<S>) {
    return detail::uuid_text(sample.uuid());
  } else if constexpr (detail::UuidMember<S>) {
    return detail::uuid_text(sample.uuid);
  } else {
    return std::nullopt;
  }
}

/// A sample type with `static S from_uuid(id)`, which creates the sample of that name.
template <class S, class Id>
concept FromUuid = requires(Id&& id) {
  { S::from_uuid(std::forward<Id>(id)) } -> std::same_as<S>;
};

/// Creates the sample of this name again, to inspect it.
template <class S, class Id>
  requires FromUuid<S, Id>
S from_uuid(Id&& id) {
  return S::from_uuid(std::forward<Id>(id));
}

}  // namespace danling::inline v0::data
