#include "telemetry/append_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <danling/core/error.hpp>

#include "core/removed_file.hpp"
#include "core/signal_mask.hpp"

namespace danling::inline v0::detail {

AppendFile::AppendFile(std::filesystem::path path, std::string_view operation, bool from_empty)
    : path_(std::move(path)), operation_(operation) {
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (from_empty ? O_TRUNC : 0), 0666);
  if (file_ < 0) {
    fail(errno);
  }
  size_ = static_cast<std::uint64_t>(std::max<off_t>(lseek(file_, 0, SEEK_END), 0));
}

AppendFile::~AppendFile() { ::close(file_); }

void AppendFile::append(std::string_view bytes) {
  if (torn_) {
    truncate(size_);
  }
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  if (const int reason = restore_removed(file_, path_); reason != 0) {
    fail(reason);
  }
  const FileSizeSignalMask quiet;
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t written = ::write(file_, bytes.data() + done, bytes.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      const int reason = written == 0 ? EIO : errno;
      torn_ = done > 0 && ftruncate(file_, static_cast<off_t>(size_)) != 0;
      fail(reason);
    }
  }
  size_ += bytes.size();
}

void AppendFile::truncate(std::uint64_t size) {
  if (ftruncate(file_, static_cast<off_t>(size)) != 0) {
    fail(errno);
  }
  size_ = size;
  torn_ = false;
}

void AppendFile::fail(int reason) const {
  v0::fail<Error>(operation_, "expected to write ", path_.string(), ", got ", quote(std::strerror(reason)),
                  reason == ENOSPC || reason == EDQUOT ? "; free some space" : "");
}

}  // namespace danling::inline v0::detail
