// The text in a run's .lock: lines `key: value`.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace danling::inline v0::detail {

inline std::string read_lock_text(int file) {
  std::array<char, 512> text{};
  const ssize_t got = pread(file, text.data(), text.size(), 0);
  return std::string(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
}

/// The value on the line `key: value`; empty without one.
inline std::string lock_field(const std::string& text, const std::string& key) {
  const auto start = text.find(key + ": ");
  if (start == std::string::npos) {
    return {};
  }
  const auto from = start + key.size() + 2;
  return text.substr(from, text.find('\n', from) - from);
}

}  // namespace danling::inline v0::detail
