#include <danling/core/format.hpp>

#include <array>
#include <charconv>
#include <cmath>

#include <core/fmt.hpp>

namespace danling::inline v0 {

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
  const std::string fixed = format_text("{:.{}f}", value, precision);
  return fixed.size() <= 60 ? fixed : format_text("{:.{}e}", value, precision);
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

}  // namespace danling::inline v0
