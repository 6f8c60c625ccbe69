// Formats values as text, for messages: no locale, no streams, no third-party header.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace danling::inline v0 {

/// Returns the shortest decimal text that parses to the same number; integral values keep a `.0`.
std::string to_text(double value);
/// Formats `value` with `precision` decimal digits; in scientific notation if that takes more than 60 characters.
std::string to_fixed(double value, int precision);
std::string to_text(std::int64_t value);
std::string to_text(std::uint64_t value);
inline std::string to_text(bool value) { return value ? "true" : "false"; }

namespace detail {
inline void append_text(std::string& out, std::string_view part) { out.append(part); }
inline void append_text(std::string& out, char part) { out.push_back(part); }
template <class T>
  requires std::is_arithmetic_v<T>
void append_text(std::string& out, T part) {
  if constexpr (std::same_as<T, bool>) {
    out.append(part ? "true" : "false");
  } else if constexpr (std::floating_point<T>) {
    out.append(to_text(static_cast<double>(part)));
  } else if constexpr (std::is_signed_v<T>) {
    out.append(to_text(static_cast<std::int64_t>(part)));
  } else {
    out.append(to_text(static_cast<std::uint64_t>(part)));
  }
}

/// Concatenates the parts: text unchanged, numbers by `to_text`.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  (append_text(out, parts), ...);
  return out;
}

/// Joins `items` by `separator`, each converted as in `concat`.
template <class Range>
std::string join(const Range& items, std::string_view separator = ", ") {
  std::string out;
  bool first = true;
  for (const auto& item : items) {
    if (!first) {
      out.append(separator);
    }
    first = false;
    append_text(out, item);
  }
  return out;
}

/// Returns `text` in single quotes, with control characters escaped.
std::string quote(std::string_view text);

}  // namespace detail

#ifdef DANLING_SOURCES  // the library's own files name them without `detail`
using detail::concat;
using detail::join;
using detail::quote;
#endif

}  // namespace danling::inline v0
