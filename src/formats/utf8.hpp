// Whether text is UTF-8 as Python reads it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace danling::inline v0::formats {

/// Position of the first byte that is not UTF-8, or npos. Lone surrogates are accepted, as Python's `surrogatepass`
/// accepts them in pickles.
std::size_t find_invalid_utf8(std::string_view text);

/// Bytes as the text whose code points are the bytes (Python's `latin1`), in UTF-8.
std::string latin1_to_utf8(std::string_view bytes);

/// The reverse; `ok` becomes false when a code point does not fit a byte.
std::string utf8_to_latin1(std::string_view text, bool& ok);

}  // namespace danling::inline v0::formats
