// UTF-8 validation and conversion, compatible with Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace danling::inline v0::formats {

/// Lone surrogates: Python's `surrogatepass` accepts them in pickles; Unicode does not.
enum class Surrogates { accepted, refused };

/// Returns the size of the first sequence of `text`, or 0 if it is not UTF-8. `text` must not be empty.
std::size_t utf8_sequence(std::string_view text, Surrogates surrogates = Surrogates::refused);

/// Returns the position of the first byte that is not UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text, Surrogates surrogates = Surrogates::accepted);

/// Replaces each byte that is not UTF-8 by U+FFFD.
std::string valid_utf8(std::string_view text);

/// Formats a byte for messages: `0xe9`.
std::string hex_byte(char byte);

/// Appends a code point.
void append_utf8(std::uint32_t code, std::string& out);

/// Converts bytes to UTF-8 text; each byte becomes the code point of that number (Python's `latin1`).
std::string latin1_to_utf8(std::string_view bytes);

/// The inverse; sets `ok` to false if a code point does not fit a byte.
std::string utf8_to_latin1(std::string_view text, bool& ok);

}  // namespace danling::inline v0::formats
