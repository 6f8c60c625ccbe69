// Errors that all ranks throw: whether the other ranks know of an error, and the message for them.
#pragma once

#include <string>
#include <string_view>

#include <danling/core/error.hpp>

#include <distributed/local_error.hpp>

namespace danling::inline v0::detail {

constexpr const char* unknown_error = "an exception that is not a std::exception";

/// Thrown by all ranks at the same place.
struct AgreedError {
  virtual ~AgreedError() = default;
};

template <class E>
struct Agreed final : E, AgreedError {
  using E::E;
};

/// Throws `E`; if `agreed`, all ranks throw it and their group stays usable.
template <class E, class... Parts>
[[noreturn]] void fail_agreed(bool agreed, std::string_view where, const Parts&... parts) {
  if (agreed) {
    fail<Agreed<E>>(where, parts...);
  }
  fail<E>(where, parts...);
}

/// Returns true if the other ranks throw the same error or caused it.
inline bool is_known_to_all(const std::exception& error) {
  return dynamic_cast<const AgreedError*>(&error) != nullptr ||
         (dynamic_cast<const DistributedError*>(&error) != nullptr &&
          dynamic_cast<const LocalError*>(&error) == nullptr);
}

/// Marks errors of the config, so that a launcher does not restart ranks because of another rank's config.
constexpr std::string_view config_mark = "wrong config: ";

inline std::string abort_reason(const std::exception& error, std::string_view message) {
  return concat(dynamic_cast<const ConfigError*>(&error) != nullptr ? config_mark : "", message);
}

/// Returns true for an error of the config, on this or another rank.
inline bool is_by_config(const std::exception& error) {
  return dynamic_cast<const ConfigError*>(&error) != nullptr ||
         (dynamic_cast<const DistributedError*>(&error) != nullptr &&
          std::string_view(error.what()).find(config_mark) != std::string_view::npos);
}

}  // namespace danling::inline v0::detail
