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
#include <cstdio>
#include <utility>

#include <danling/formats/file.hpp>

#include <core/signal_mask.hpp>
#include <formats/side_thread.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::size_t buffer_size = std::size_t{1} << 16;
// Pieces of this size and more bypass the buffer.
constexpr std::size_t direct_bytes = std::size_t{1} << 14;
// Bytes per write: small enough to detect a full disk early and to start the device early.
constexpr std::size_t piece_bytes = std::size_t{1} << 23;
constexpr std::size_t copy_piece = std::size_t{1} << 20;
constexpr std::uint64_t page_size = std::uint64_t{1} << 16;  // the largest page size in use

// Separates the final name from the unique suffix of a temporary name.
constexpr std::string_view temporary_mark = ".tmp-";

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target, FileErrors errors)
    : target_(std::move(target)), errors_(std::move(errors)), owner_(::getpid()) {
  static std::atomic<unsigned> counter{0};
  for (;;) {
    temporary_ = directory_of(target_) /
                 concat(".", target_.filename().string(), temporary_mark, owner_, "-", counter.fetch_add(1));
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno == EEXIST) {
      continue;
    }
    if (descriptor_ < 0) {
      errors_.fail_system("create", target_, errno);
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
    errors_.fail_system(what, target_, error);
  }
}

void AtomicFile::begin_write(std::size_t bytes) {
  if (failed_) {
    errors_.fail("expected no call after an error, got one (file ", quote(target_.string()), ")");
  }
  if (finished_) {
    errors_.fail("expected no more bytes after finish, got ", bytes);
  }
  size_ += bytes;
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  begin_write(bytes.size());
  if (buffer_.size() + bytes.size() > buffer_size || bytes.size() >= direct_bytes) {
    flush();
  }
  if (bytes.size() >= direct_bytes) {
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
  const bool failed = std::exchange(failed_, true);  // stays set if `meanwhile` threw
  side_->wait();
  failed_ = failed;
}

void AtomicFile::write(const InputFile& source) {
  begin_write(0);
  if (size_ == 0 && source.size() > 0 && source.whole_ && ::ioctl(descriptor_, FICLONE, source.descriptor()) == 0) {
    begin_write(static_cast<std::size_t>(source.size()));
    ::lseek(descriptor_, 0, SEEK_END);  // later appends follow the cloned content
    return;
  }
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min<std::uint64_t>(copy_piece, source.size())));
  for (std::uint64_t offset = 0; offset < source.size();) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), source.size() - offset));
    failed_ = true;  // if the source cannot be read
    source.read(offset, std::span(piece).first(count));
    failed_ = false;
    write(std::span<const std::byte>(piece).first(count));
    offset += count;
  }
}

void AtomicFile::rewrite(std::uint64_t offset, std::string_view text) {
  begin_write(0);
  if (offset > size_ || text.size() > size_ - offset) {
    errors_.fail("expected to replace bytes that were written, got ", text.size(), " bytes at offset ", offset, " of ",
                 size_, " (file ", quote(target_.string()), ")");
  }
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
    const ssize_t done = ::write(descriptor_, bytes.data(), std::min(bytes.size(), piece_bytes));
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      check_system(done < 0 ? errno : EIO, "write");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    written_ += static_cast<std::uint64_t>(done);
    if (written_ - writeback_end_ >= piece_bytes) {
      // Starts the writeback of this part while the rest is written. Only a hint: fsync reports errors.
      const std::uint64_t whole = written_ / page_size * page_size;
      ::sync_file_range(descriptor_, static_cast<off_t>(writeback_end_), static_cast<off_t>(whole - writeback_end_),
                        SYNC_FILE_RANGE_WRITE);
      writeback_end_ = whole;
    }
  }
}

void AtomicFile::finish() {
  if (finished_ && !failed_) {
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
  if (failed_) {
    errors_.fail("expected ", size_, " bytes on disk, got ", static_cast<std::uint64_t>(status.st_size), " (file ",
                 quote(target_.string()), ")");
  }
  finished_ = true;
}

void AtomicFile::commit() {
  finish();
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    check_system(errno, "rename the new file to");
  }
  committed_ = true;
  sync_directory(directory_of(target_), errors_);
}

void replace_file(const std::filesystem::path& path, std::string_view text, const FileErrors& errors) {
  AtomicFile file(path, errors);
  file.write(text);
  file.commit();
}

void replace_directory(const std::filesystem::path& made, const std::filesystem::path& place,
                       const FileErrors& errors) {
  std::error_code ignored;
  if (::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0) {
    std::filesystem::remove_all(made, ignored);
    return;
  }
  // Without an exchange: keeps the old directory under another name until the new one has its name.
  const auto old = directory_of(place) / concat(".", place.filename().string(), temporary_mark, "old");
  std::filesystem::remove_all(old, ignored);
  const bool moved = ::rename(place.c_str(), old.c_str()) == 0;
  if ((!moved && errno != ENOENT) || ::rename(made.c_str(), place.c_str()) != 0) {
    const int error = errno;
    if (moved) {
      ::rename(old.c_str(), place.c_str());
    }
    errors.fail_system("rename the new directory to", place, error);
  }
  std::filesystem::remove_all(old, ignored);
}

void sync_directory(const std::filesystem::path& directory, const FileErrors& errors) {
  const danling::detail::Descriptor file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A directory may be writable but not readable. Some file systems cannot sync a directory.
  if (file.get() < 0 ? errno != EACCES : ::fsync(file.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    errors.fail_system("sync the directory", directory, errno);
  }
}

void sync_file(const std::filesystem::path& path, const FileErrors& errors) {
  const danling::detail::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 ? errno != ENOENT : ::fdatasync(file.get()) != 0) {
    errors.fail_system("sync", path, errno);
  }
}

PendingAlias::PendingAlias(const std::filesystem::path& existing, std::filesystem::path name)
    : name_(std::move(name)),
      link_(directory_of(name_) / concat(".", name_.filename().string(), temporary_mark, "link")) {
  ::unlink(link_.c_str());  // left by a dead writer
  if (::link(existing.c_str(), link_.c_str()) == 0) {
    return;
  }
  copy_.emplace(name_);
  copy_->write(InputFile(existing));
  copy_->finish();
}

// Removes the temporary name in every case: rename() does nothing if both names are links to one file.
PendingAlias::~PendingAlias() { ::unlink(link_.c_str()); }

void PendingAlias::commit() {
  if (copy_) {
    copy_->commit();
  } else if (::rename(link_.c_str(), name_.c_str()) != 0) {
    write_errors().fail_system("rename the new file to", name_, errno);
  }
}

std::vector<std::filesystem::path> remove_stale_temporaries(const std::filesystem::path& directory) noexcept {
  std::vector<std::filesystem::path> removed;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (name.front() != '.' || name.find(temporary_mark) == std::string::npos || !entry->is_regular_file(ignored)) {
      continue;
    }
    const danling::detail::Descriptor file(::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC));
    if (file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 && ::unlink(entry->path().c_str()) == 0) {
      removed.push_back(entry->path());
    }
  }
  return removed;
}

}  // namespace danling::inline v0::formats
