// AtomicFile: writes a temporary file and renames it once it is on disk.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include <danling/core/error.hpp>
#include <danling/formats/file.hpp>

#include <core/signal_mask.hpp>
#include <formats/side_thread.hpp>
#include <formats/system_error.hpp>
#include <formats/temporary_name.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::size_t kBufferSize = std::size_t{1} << 16;
// Pieces of this size and more bypass the buffer.
constexpr std::size_t kDirect = std::size_t{1} << 14;
// Bytes per write: small enough to detect a full disk early and to start the device early.
constexpr std::size_t kPiece = std::size_t{1} << 23;
constexpr std::size_t kCopyPiece = std::size_t{1} << 20;
constexpr std::uint64_t kPage = std::uint64_t{1} << 16;  // the largest page size in use

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)), owner_(::getpid()) {
  static std::atomic<unsigned> counter{0};
  for (;;) {
    temporary_ = directory_of(target_) /
                 concat(".", target_.filename().string(), temporary_mark, owner_, "-", counter.fetch_add(1));
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno == EEXIST) {
      continue;
    }
    if (descriptor_ < 0) {
      fail_system("checkpoint.write", "create", target_, errno);
    }
    // The lock ends when the descriptor closes, also in a crash. So remove_stale_temporaries detects dead writers.
    ::flock(descriptor_, LOCK_EX | LOCK_NB);
    struct stat status{};
    if (::fstat(descriptor_, &status) == 0 && status.st_nlink > 0) {
      return;
    }
    ::close(descriptor_);  // another process removed it as stale before the lock: try another name
  }
}

AtomicFile::~AtomicFile() {
  // A forked child must neither remove the file nor wait for the thread.
  const bool mine = owner_ == ::getpid();
  if (!mine) {
    static_cast<void>(side_.release());
  }
  if (mine && !committed_) {
    ::unlink(temporary_.c_str());
  }
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void AtomicFile::check_system(int error, std::string_view what) {
  if (error != 0) {
    failed_ = true;
    fail_system("checkpoint.write", what, target_, error);
  }
}

void AtomicFile::begin_write(std::size_t bytes) {
  check<CheckpointError>(!finished_, "checkpoint.write", "expected no more bytes after finish, got ", bytes);
  check<CheckpointError>(!failed_, "checkpoint.write", "expected no call after an error, got one (file ",
                         quote(target_.string()), ")");
  size_ += bytes;
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  begin_write(bytes.size());
  if (buffer_.size() + bytes.size() > kBufferSize || bytes.size() >= kDirect) {
    flush();
  }
  if (bytes.size() >= kDirect) {
    append(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::write(std::span<const std::byte> bytes, const std::function<void()>& meanwhile) {
  if (!side_) {
    side_ = std::make_unique<SideThread>();
  }
  side_->start(meanwhile);
  try {
    write(bytes);
  } catch (...) {  // the other thread still reads `bytes`: wait before they are freed
    side_->wait();
    throw;
  }
  side_->wait();
}

void AtomicFile::write(const InputFile& source) {
  if (size_ == 0 && source.size() > 0 && source.begin_ == 0 && ::ioctl(descriptor_, FICLONE, source.descriptor_) == 0) {
    begin_write(static_cast<std::size_t>(source.size()));
    ::lseek(descriptor_, 0, SEEK_END);  // later appends follow the cloned content
    return;
  }
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min<std::uint64_t>(kCopyPiece, source.size())));
  for (std::uint64_t offset = 0; offset < source.size();) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), source.size() - offset));
    source.read(offset, std::span(piece).first(count));
    write(std::span<const std::byte>(piece).first(count));
    offset += count;
  }
}

void AtomicFile::rewrite(std::uint64_t offset, std::string_view text) {
  begin_write(0);
  check<CheckpointError>(offset <= size_ && text.size() <= size_ - offset, "checkpoint.write",
                         "expected to replace bytes that were written, got ", text.size(), " bytes at offset ", offset,
                         " of ", size_, " (file ", quote(target_.string()), ")");
  flush();
  while (!text.empty()) {
    const ssize_t done = ::pwrite(descriptor_, text.data(), text.size(), static_cast<off_t>(offset));
    if (done < 0 && errno != EINTR) {
      check_system(errno, "write");
    }
    const auto count = static_cast<std::size_t>(std::max<ssize_t>(done, 0));
    offset += count;
    text.remove_prefix(count);
  }
}

void AtomicFile::flush() {
  append(buffer_);
  buffer_.clear();
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  const detail::FileSizeSignalMask quiet;
  while (!bytes.empty()) {
    const ssize_t done = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kPiece));
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      check_system(done < 0 ? errno : EIO, "write");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    written_ += static_cast<std::uint64_t>(done);
    if (written_ - writeback_end_ >= kPiece) {
      // Starts the writeback of this part while the rest is written. Only a hint: fsync reports errors.
      const std::uint64_t whole = written_ / kPage * kPage;
      ::sync_file_range(descriptor_, static_cast<off_t>(writeback_end_), static_cast<off_t>(whole - writeback_end_),
                        SYNC_FILE_RANGE_WRITE);
      writeback_end_ = whole;
    }
  }
}

void AtomicFile::finish() {
  if (finished_) {
    return;
  }
  begin_write(0);
  flush();
  if (::fsync(descriptor_) != 0) {
    check_system(errno, "sync");
  }
  // Some file systems report a lost write only at close. Close a duplicate descriptor, since closing the first would
  // release the lock.
  const int twin = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (twin >= 0 && ::close(twin) != 0 && errno != EINTR) {
    check_system(errno, "close");
  }
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) {
    check_system(errno, "examine");
  }
  failed_ = static_cast<std::uint64_t>(status.st_size) != size_;
  check<CheckpointError>(!failed_, "checkpoint.write", "expected ", size_, " bytes on disk, got ",
                         static_cast<std::uint64_t>(status.st_size), " (file ", quote(target_.string()), ")");
  finished_ = true;
}

void AtomicFile::commit() {
  finish();
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    check_system(errno, "rename the new file to");
  }
  committed_ = true;
  sync_directory(directory_of(target_));
}

}  // namespace danling::inline v0::formats
