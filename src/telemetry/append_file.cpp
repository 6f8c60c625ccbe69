#include <telemetry/append_file.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <danling/core/error.hpp>

#include <core/removed_file.hpp>
#include <core/signal_mask.hpp>

namespace danling::inline v0::detail {
namespace {

[[noreturn]] void fail_file(const std::filesystem::path& path, int reason) {
  fail("sink.write", "expected to write ", path.string(), ", got ", quote(std::strerror(reason)),
       reason == ENOSPC || reason == EDQUOT ? "; free some space" : "");
}

}  // namespace

AppendFile::AppendFile(std::filesystem::path path, Content content)
    : path_(std::move(path)),
      file_(::open(path_.c_str(),
                   O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (content == Content::emptied ? O_TRUNC : 0) |
                       (content == Content::created ? O_EXCL : 0),
                   0666)) {
  const off_t end = file_.get() < 0 ? -1 : ::lseek(file_.get(), 0, SEEK_END);
  if (end < 0) {
    fail_file(path_, errno);
  }
  size_ = static_cast<std::uint64_t>(end);
}

void AppendFile::cut() {
  torn_ = ::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0;
  if (torn_) {
    fail_file(path_, errno);
  }
}

void AppendFile::append(std::string_view bytes) {
  if (torn_) {
    cut();
  }
  const FileSizeSignalMask quiet;
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(file_.get(), bytes.data() + done, bytes.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      const int reason = written == 0 ? EIO : errno;
      torn_ = done > 0 && ::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0;
      fail_file(path_, reason);
    }
  }
  size_ += bytes.size();
}

void AppendFile::restore() {
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  if (const int reason = restore_removed(file_.get(), path_); reason != 0) {
    fail_file(path_, reason);
  }
}

void AppendFile::rename(const std::filesystem::path& path) {
  restore();
  if (torn_) {
    cut();
  }
  if (::fdatasync(file_.get()) != 0 || ::rename(path_.c_str(), path.c_str()) != 0) {
    fail_file(path, errno);
  }
  path_ = path;
}

}  // namespace danling::inline v0::detail
