// Formats values as text, for messages: no locale, no streams, no third-party header.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace danling::inline v0 {

/// Returns the shortest decimal text that parses to the same number: `0.1`, `1e+05`, `nan`, `inf`. A text without point
/// and exponent gets `.0`: `3.0`.
std::string to_text(double value);
/// Formats `value` with `precision` decimal digits; in scientific notation if that takes more than 60 characters.
std::string to_fixed(double value, int precision);
/// Formats as `%.*e` of printf, in every locale: `1.2500e-03`.
std::string to_scientific(double value, int precision);
/// Formats as `%.*g` of printf, in every locale: significant digits without trailing zeros.
std::string to_significant(double value, int digits);
std::string to_text(std::int64_t value);
std::string to_text(std::uint64_t value);
inline std::string to_text(bool value) { return value ? "true" : "false"; }

/// Returns a text such as `512 B` or `45.2 MiB`.
std::string format_bytes(std::uint64_t bytes);
/// Returns a number by powers of 1,000: `896`, `25.1 k`, `1.23 G`.
std::string format_amount(std::int64_t amount);
/// Returns a fraction as a percentage: `12.5 %`.
std::string format_percent(double part);
/// Returns `300 s`, `31.5 s` or `0.25 s`: rounded to milliseconds and to three digits, whole seconds from 1,000 s on.
std::string format_seconds(double seconds);
/// The same for a duration of std::chrono; a template, since that header takes long to compile.
template <class Time>
  requires requires { typename Time::period; }
std::string format_seconds(const Time& time) {
  return format_seconds(static_cast<double>(time.count()) * Time::period::num / Time::period::den);
}

namespace detail {

/// A part of a message: text, a character, a bool or a number. Refers to the text, which must outlive it.
class TextPart {
 public:
  explicit TextPart(std::string_view text) : size_(text.size()), kind_(Kind::text) { value_.data = text.data(); }
  explicit TextPart(const char* text) : TextPart(std::string_view(text)) {}
  explicit TextPart(const std::string& text) : TextPart(std::string_view(text)) {}
  explicit TextPart(char character) : kind_(Kind::character) { value_.integer = static_cast<unsigned char>(character); }
  template <class T>
    requires std::is_arithmetic_v<T>
  explicit TextPart(T number) {
    if constexpr (std::same_as<T, bool>) {
      kind_ = Kind::boolean;
      value_.integer = number ? 1 : 0;
    } else if constexpr (std::floating_point<T>) {
      kind_ = Kind::real;
      value_.real = static_cast<double>(number);
    } else if constexpr (std::is_signed_v<T>) {
      kind_ = Kind::integer;
      value_.integer = number;
    } else {
      kind_ = Kind::unsigned_integer;
      value_.unsigned_integer = number;
    }
  }
  void append_to(std::string& out) const;
  /// The number of bytes of a text; an estimate for the others.
  std::size_t size() const { return kind_ == Kind::text ? size_ : 8; }

 private:
  enum class Kind : std::uint8_t { text, character, boolean, integer, unsigned_integer, real };
  union {
    const char* data;
    std::int64_t integer;
    std::uint64_t unsigned_integer;
    double real;
  } value_;
  std::size_t size_ = 0;
  Kind kind_;
};

std::string concat_parts(std::initializer_list<TextPart> parts);

/// Concatenates the parts: text unchanged, numbers by `to_text`. Compiled once for all types: thousands of places
/// call it.
template <class... Parts>
std::string concat(const Parts&... parts) {
  return concat_parts({TextPart(parts)...});
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
    TextPart(item).append_to(out);
  }
  return out;
}

/// Returns `text` in single quotes, with control characters escaped.
std::string quote(std::string_view text);

/// Returns `text` as one word of a shell, quoted only where it must be: for commands that a user may copy.
std::string shell_word(std::string_view text);

}  // namespace detail

#ifdef DANLING_SOURCES  // the library's own files name them without `detail`
using detail::concat;
using detail::join;
using detail::quote;
#endif

}  // namespace danling::inline v0
