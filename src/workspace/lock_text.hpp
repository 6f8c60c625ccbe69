// A run's .lock: how it is taken, and its text, lines `key: value`.
#pragma once

#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

namespace danling::inline v0::detail {

/// Locks the file for this process alone; returns 0, or errno: EWOULDBLOCK when another process has it. One that only
/// looks whether it is free (RunDirectory::lock) shares it for an instant, which is waited for.
inline int take_lock(int file) {
  for (int tries = 0;; ++tries) {
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) {
      return 0;
    }
    constexpr int most = 5000;
    const bool shared = errno == EWOULDBLOCK && tries < most && ::flock(file, LOCK_SH | LOCK_NB) == 0;
    if (!shared && errno != EINTR) {
      return errno;
    }
    if (shared) {
      ::flock(file, LOCK_UN);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
}

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
