// Parses numbers and words; accepts only whole texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace danling::inline v0::detail {

/// Parses decimal digits with an optional sign, within 64 bits.
std::optional<std::int64_t> parse_integer(std::string_view text);
/// Parses a decimal number, `inf` or `nan` with or without YAML's dot; returns nullopt on overflow.
std::optional<double> parse_number(std::string_view text);
/// As parse_number, but rounds once, to float.
std::optional<float> parse_float(std::string_view text);
/// Parses true/false, yes/no and on/off in YAML's spellings: lower case, capitalised or upper case.
std::optional<bool> parse_bool(std::string_view text);
/// Returns true for an empty text, `~`, `null`, `Null` or `NULL`.
bool is_null_word(std::string_view text);
/// Returns true if a YAML 1.1 or 1.2 reader might read the plain text as anything but a string.
bool reads_as_other(std::string_view text);

/// Returns the double with the same shortest text as `value`.
double float_as_double(float value);

}  // namespace danling::inline v0::detail
