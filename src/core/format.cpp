#include <danling/core/format.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include <core/fmt.hpp>

namespace danling::inline v0 {
namespace {

// Divides `value` by `step` while it is at least `limit`; returns the number of divisions, at most `last`.
std::size_t divide_down(double& value, double step, double limit, std::size_t last) {
  std::size_t count = 0;
  for (; value >= limit && count < last; ++count) {
    value /= step;
  }
  return count;
}

}  // namespace

std::string to_text(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-inf" : "inf";
  }
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";
  }
  return text;
}

std::string to_fixed(double value, int precision) {
  if (!std::isfinite(value)) {
    return to_text(value);
  }
  // std::to_chars takes a third of fmt's instructions, and each line of a run has several numbers.
  std::array<char, 60> text{};  // longer ones are written as powers of ten
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, precision);
  return end.ec == std::errc() ? std::string(text.data(), end.ptr) : to_scientific(value, precision);
}

std::string to_scientific(double value, int precision) {
  return std::isfinite(value) ? format_text("{:.{}e}", value, precision) : to_text(value);
}

std::string to_significant(double value, int digits) {
  return std::isfinite(value) ? format_text("{:.{}g}", value, digits) : to_text(value);
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 7> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  const std::size_t unit = divide_down(value, 1024, 1023.95, units.size() - 1);  // 1023.95 would be printed as 1024.0
  return concat(to_fixed(value, unit == 0 ? 0 : 1), " ", units[unit]);
}

std::string format_amount(std::int64_t amount) {
  static constexpr std::array<std::string_view, 7> prefixes = {"", " k", " M", " G", " T", " P", " E"};
  auto value = static_cast<double>(amount);
  const std::size_t prefix = divide_down(value, 1000, 999.5, prefixes.size() - 1);
  return concat(to_significant(value, 3), prefixes[prefix]);
}

std::string format_percent(double part) { return concat(to_fixed(100 * part, 1), " %"); }

std::string format_seconds(double seconds) {
  // Three digits of 999.5 and more would need an exponent.
  return concat(std::abs(seconds) < 999.5 ? to_significant(std::round(seconds * 1000) / 1000, 3) : to_fixed(seconds, 0),
                " s");
}

std::string to_text(std::int64_t value) { return std::to_string(value); }

std::string to_text(std::uint64_t value) { return std::to_string(value); }

void detail::TextPart::append_to(std::string& out) const {
  switch (kind_) {
    case Kind::text:
      out.append(value_.data, size_);
      return;
    case Kind::character:
      out.push_back(static_cast<char>(value_.integer));
      return;
    case Kind::boolean:
      out.append(to_text(value_.integer != 0));
      return;
    case Kind::integer:
      out.append(to_text(value_.integer));
      return;
    case Kind::unsigned_integer:
      out.append(to_text(value_.unsigned_integer));
      return;
    case Kind::real:
      out.append(to_text(value_.real));
  }
}

std::string detail::concat_parts(std::initializer_list<TextPart> parts) {
  std::size_t size = 0;
  for (const TextPart& part : parts) {
    size += part.size();
  }
  std::string out;
  out.reserve(size);
  for (const TextPart& part : parts) {
    part.append_to(out);
  }
  return out;
}

std::string detail::quote(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += format_text("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += '\'';
  return out;
}

std::string detail::shell_word(std::string_view text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("/._-+=,:@").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) {
    return std::string(text);
  }
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

}  // namespace danling::inline v0
