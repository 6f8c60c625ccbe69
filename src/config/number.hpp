// Parses numbers and words; the whole text or nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace danling::inline v0::detail {

/// Decimal digits with an optional sign, within 64 bits.
std::optional<std::int64_t> parse_integer(std::string_view text);
/// As parse_integer, from 0 to 2^64 - 1.
std::optional<std::uint64_t> parse_unsigned(std::string_view text);
/// A decimal number, `inf` or `nan` with or without YAML's dot; nothing when it does not fit.
std::optional<double> parse_number(std::string_view text);
/// As parse_number, rounded once.
std::optional<float> parse_float(std::string_view text);
/// true/false, yes/no, on/off as YAML spells them: lower case, capitalised or upper case.
std::optional<bool> parse_bool(std::string_view text);
/// An empty text, `~`, `null`, `Null` or `NULL`.
bool is_null_word(std::string_view text);
/// Whether a YAML 1.1 or 1.2 reader might take the plain text for anything but a string.
bool reads_as_other(std::string_view text);

/// The double whose shortest text is that of `value`.
double float_as_double(float value);

}  // namespace danling::inline v0::detail
