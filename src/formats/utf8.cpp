#include <formats/utf8.hpp>

#include <cstring>

namespace danling::inline v0::formats {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// A fast path, since most texts are ASCII.
std::size_t skip_ascii(std::string_view text, std::size_t at) {
  std::uint64_t eight = 0;
  while (text.size() - at >= sizeof eight) {
    std::memcpy(&eight, text.data() + at, sizeof eight);
    if ((eight & 0x8080808080808080ULL) != 0) {
      break;
    }
    at += sizeof eight;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) {
    ++at;
  }
  return at;
}

}  // namespace

std::size_t utf8_sequence(std::string_view text, Surrogates surrogates) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) {
    return 1;
  }
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[i])) {
      return 0;
    }
  }
  const auto second = static_cast<unsigned char>(text[1]);
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool too_large = lead == 0xf4 && second > 0x8f;
  const bool surrogate = lead == 0xed && second > 0x9f && surrogates == Surrogates::refused;
  return overlong || too_large || surrogate ? 0 : length;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = utf8_sequence(text);
    out += size > 0 ? text.substr(0, size) : std::string_view("\xef\xbf\xbd");
    text.remove_prefix(size > 0 ? size : 1);
  }
  return out;
}

std::size_t find_invalid_utf8(std::string_view text, Surrogates surrogates) {
  for (std::size_t at = skip_ascii(text, 0); at < text.size();) {
    const std::size_t length = utf8_sequence(text.substr(at), surrogates);
    if (length == 0) {
      return at;
    }
    at += length;
    if (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) {
      at = skip_ascii(text, at);
    }
  }
  return std::string_view::npos;
}

std::string hex_byte(char byte) {
  static constexpr std::string_view digits = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  return {'0', 'x', digits[value >> 4], digits[value & 15]};
}

void append_utf8(std::uint32_t code, std::string& out) {
  const auto add = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    return add(code);
  }
  if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      add(0xe0 | code >> 12);
    } else {
      add(0xf0 | code >> 18);
      add(0x80 | (code >> 12 & 0x3f));
    }
    add(0x80 | (code >> 6 & 0x3f));
  }
  add(0x80 | (code & 0x3f));
}

std::string latin1_to_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 2);
  for (const char c : bytes) {
    append_utf8(static_cast<unsigned char>(c), out);
  }
  return out;
}

std::string utf8_to_latin1(std::string_view text, bool& ok) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      out.push_back(text[at]);
    } else if ((byte == 0xc2 || byte == 0xc3) && at + 1 < text.size() && is_continuation(text[at + 1])) {
      out.push_back(static_cast<char>((byte & 0x03) << 6 | (static_cast<unsigned char>(text[++at]) & 0x3f)));
    } else {
      ok = false;
      return {};
    }
  }
  return out;
}

}  // namespace danling::inline v0::formats
