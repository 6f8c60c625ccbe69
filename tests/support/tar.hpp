// TAR archives for tests, header by header.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace danling_test {

/// Returns a ustar header with a checksum; `size` is the text of the size field.
inline std::string tar_header(const std::string& name, const std::string& size, char type = '0') {
  std::string out(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) { out.replace(at, text.size(), text); };
  put(0, name);
  put(124, size);
  put(148, "        ");
  out[156] = type;
  put(257, std::string("ustar\0", 6) + "00");
  unsigned sum = 0;
  for (const char byte : out) {
    sum += static_cast<unsigned char>(byte);
  }
  std::string digits;
  for (int shift = 15; shift >= 0; shift -= 3) {
    digits.push_back(static_cast<char>('0' + (sum >> shift & 7)));
  }
  put(148, digits + std::string("\0 ", 2));
  return out;
}

/// Returns eleven octal digits.
inline std::string tar_size(std::size_t size) {
  std::string digits(11, '0');
  for (std::size_t i = 0; i < 11; ++i, size >>= 3) {
    digits[10 - i] = static_cast<char>('0' + (size & 7));
  }
  return digits;
}

/// Pads `content` to whole blocks.
inline std::string tar_blocks(std::string content) {
  content.resize((content.size() + 511) / 512 * 512);
  return content;
}

inline std::string tar_archive(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out;
  for (const auto& [name, content] : members) {
    out += tar_header(name, tar_size(content.size())) + tar_blocks(content);
  }
  return out + std::string(1024, '\0');
}

}  // namespace danling_test
