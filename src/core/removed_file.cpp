#include <core/removed_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <core/signal_mask.hpp>

namespace danling::inline v0::detail {

int restore_removed(int file, const std::filesystem::path& path) noexcept {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 || errno != ENOENT) {
    return 0;
  }
  const int anew = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (anew < 0) {
    return errno;
  }
  const FileSizeSignalMask quiet;
  std::array<char, 65536> block;
  int reason = 0;
  off_t done = 0;
  for (ssize_t got = 1; reason == 0 && got != 0;) {
    got = ::pread(file, block.data(), block.size(), done);
    const ssize_t written = got > 0 ? ::write(anew, block.data(), static_cast<std::size_t>(got)) : got;
    if (written >= 0) {
      done += written;
    } else if (errno != EINTR) {
      reason = errno;
    }
  }
  if (reason == 0 && ::dup3(anew, file, O_CLOEXEC) < 0) {
    reason = errno;
  }
  if (reason != 0) {
    ::unlink(path.c_str());
  }
  ::close(anew);
  return reason;
}

}  // namespace danling::inline v0::detail
