// Simulates a full file system by the kernel's limit on file sizes.
#pragma once

#include <sys/resource.h>

#include <csignal>

#include <support/catch.hpp>

namespace danling_test {

/// While it lives, writes beyond `bytes` fail with EFBIG, as they fail with ENOSPC on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes, void (*on_signal)(int) = SIG_IGN) : handler_(std::signal(SIGXFSZ, on_signal)) {
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

}  // namespace danling_test
