#include <danling/formats/file.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::size_t kBufferSize = std::size_t{1} << 16;
// One call may move at most 2 GiB; smaller pieces let a full disk be noticed early.
constexpr std::size_t kPiece = std::size_t{1} << 26;

[[noreturn]] void fail_system(std::string_view where, std::string_view what, const std::filesystem::path& path,
                              int error) {
  fail<CheckpointError>(where, "expected to ", what, " ", quote(path.string()), ", got errno ", error, " (",
                        std::generic_category().message(error), ")");
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) {
      ::close(value_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

constexpr std::string_view kTemporaryMark = ".tmp-";

}  // namespace

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    fail_system("checkpoint.read", "open", path_, errno);
  }
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    const int error = errno;
    const bool regular = S_ISREG(status.st_mode);
    ::close(descriptor_);
    descriptor_ = -1;
    if (regular) {
      fail_system("checkpoint.read", "open", path_, error);
    }
    fail<CheckpointError>("checkpoint.read", "expected a file, got ",
                          S_ISDIR(status.st_mode) ? "a directory" : "something else", " at ", quote(path_.string()));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset) {
    fail<CheckpointError>("checkpoint.read", "expected ", out.size(), " bytes at offset ", offset, ", got a file of ",
                          size_, " bytes (file ", quote(path_.string()), ")");
  }
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), std::min(out.size(), kPiece), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      fail_system("checkpoint.read", "read", path_, errno);
    }
    if (got == 0) {
      fail<CheckpointError>("checkpoint.read", "expected ", out.size(), " more bytes at offset ", offset,
                            ", got the end of a file that became shorter (file ", quote(path_.string()), ")");
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)) {
  buffer_.reserve(kBufferSize);
  static std::atomic<unsigned> counter{0};
  for (;;) {
    temporary_ = directory_of(target_) /
                 concat(".", target_.filename().string(), kTemporaryMark, ::getpid(), "-", counter.fetch_add(1));
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno == EEXIST) {
      continue;
    }
    if (descriptor_ < 0) {
      fail_system("checkpoint.write", "create", target_, errno);
    }
    // Held until the descriptor closes, also by a crash: this is how remove_leftovers knows that the writer is gone.
    ::flock(descriptor_, LOCK_EX | LOCK_NB);
    struct stat status {};
    if (::fstat(descriptor_, &status) == 0 && status.st_nlink > 0) {
      return;
    }
    ::close(descriptor_);  // taken for a leftover before it was locked
  }
}

AtomicFile::~AtomicFile() {
  if (!committed_) {
    ::unlink(temporary_.c_str());
  }
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  check<CheckpointError>(!finished_, "checkpoint.write", "expected no more bytes after finish, got ", bytes.size());
  size_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferSize) {
    flush();
  }
  if (bytes.size() > kBufferSize) {
    append(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::flush() {
  append(buffer_);
  buffer_.clear();
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kPiece));
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done < 0) {
      fail_system("checkpoint.write", "write", target_, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void AtomicFile::finish() {
  if (finished_) {
    return;
  }
  flush();
  if (::fsync(descriptor_) != 0) {
    fail_system("checkpoint.write", "bring to disk", target_, errno);
  }
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    fail_system("checkpoint.write", "examine", target_, errno);
  }
  check<CheckpointError>(static_cast<std::uint64_t>(status.st_size) == size_, "checkpoint.write", "expected ", size_,
                         " bytes on disk, got ", static_cast<std::uint64_t>(status.st_size), " (file ",
                         quote(target_.string()), ")");
  finished_ = true;
}

void AtomicFile::commit() {
  finish();
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail_system("checkpoint.write", "rename the new file to", target_, errno);
  }
  committed_ = true;
  sync_directory(directory_of(target_));
}

void sync_directory(const std::filesystem::path& directory) {
  const Descriptor descriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a directory and say so with EINVAL.
  if (descriptor.get() < 0 || (::fsync(descriptor.get()) != 0 && errno != EINVAL)) {
    fail_system("checkpoint.write", "bring to disk the directory", directory, errno);
  }
}

PendingAlias::PendingAlias(const std::filesystem::path& existing, std::filesystem::path name)
    : name_(std::move(name)),
      link_(directory_of(name_) / concat(".", name_.filename().string(), kTemporaryMark, "link")) {
  ::unlink(link_.c_str());  // of a writer that is gone
  if (::link(existing.c_str(), link_.c_str()) == 0) {
    return;
  }
  const InputFile source(existing);
  copy_.emplace(name_);
  std::vector<std::byte> piece(std::size_t{1} << 20);
  for (std::uint64_t offset = 0; offset < source.size();) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), source.size() - offset));
    source.read(offset, std::span(piece).first(count));
    copy_->write(std::span<const std::byte>(piece).first(count));
    offset += count;
  }
  copy_->finish();
}

// rename() does nothing when both names are links to one file, so the spare name is removed in every case.
PendingAlias::~PendingAlias() { ::unlink(link_.c_str()); }

void PendingAlias::commit() {
  if (copy_) {
    copy_->commit();
  } else if (::rename(link_.c_str(), name_.c_str()) != 0) {
    fail_system("checkpoint.write", "rename the new file to", name_, errno);
  }
}

std::vector<std::filesystem::path> remove_leftovers(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> removed;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.front() != '.' || name.find(kTemporaryMark) == std::string::npos || !entry.is_regular_file(error)) {
      continue;
    }
    const Descriptor descriptor(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    if (descriptor.get() >= 0 && ::flock(descriptor.get(), LOCK_EX | LOCK_NB) == 0 &&
        ::unlink(entry.path().c_str()) == 0) {
      removed.push_back(entry.path());
    }
  }
  return removed;
}

}  // namespace danling::inline v0::formats
