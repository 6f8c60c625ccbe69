// UTF-8 validation and conversion, compatible with Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace danling::inline v0::formats {

/// Python's `surrogatepass` accepts lone ones in pickles; Unicode does not.
enum class Surrogates { accepted, refused };

/// Size of the first sequence of `text`, which is not empty, or 0 if it is not UTF-8.
std::size_t utf8_sequence(std::string_view text, Surrogates surrogates = Surrogates::refused);

/// Position of the first byte that is not UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text, Surrogates surrogates = Surrogates::accepted);

/// `text` with U+FFFD in place of each byte that is not UTF-8.
std::string valid_utf8(std::string_view text);

/// A byte for messages: `0xe9`.
std::string hex_byte(char byte);

/// Appends a code point.
void append_utf8(std::uint32_t code, std::string& out);

/// Converts bytes to the text whose code points are the bytes (Python's `latin1`), in UTF-8.
std::string latin1_to_utf8(std::string_view bytes);

/// The inverse; `ok` becomes false when a code point does not fit a byte.
std::string utf8_to_latin1(std::string_view text, bool& ok);

}  // namespace danling::inline v0::formats
