// The .lock file of a run: takes the lock and reads its text, which has lines `key: value`.
#pragma once

#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

namespace danling::inline v0::detail {

/// Takes the exclusive lock. Returns 0, or errno: EWOULDBLOCK if another process holds it. Waits for readers, which
/// hold a shared lock briefly (RunDirectory::lock).
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

/// Returns the value of the line `key: value`; empty if there is none.
inline std::string lock_field(const std::string& text, const std::string& key) {
  const auto start = text.find(key + ": ");
  if (start == std::string::npos) {
    return {};
  }
  const auto from = start + key.size() + 2;
  return text.substr(from, text.find('\n', from) - from);
}

}  // namespace danling::inline v0::detail
