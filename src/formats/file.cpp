#include <danling/formats/file.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <danling/core/error.hpp>

#include <formats/system_error.hpp>
#include <formats/temporary_name.hpp>

namespace danling::inline v0::formats {
namespace {

// Bytes per call, which may read at most 2 GiB.
constexpr std::size_t kFilePiece = std::size_t{1} << 26;

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

}  // namespace

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  // O_NONBLOCK: otherwise a pipe without a writer would block instead of being refused.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    fail_system("checkpoint.read", "open", path_, errno);
  }
  struct stat status{};
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

InputFile::InputFile(std::filesystem::path path, std::uint64_t offset, std::uint64_t length)
    : InputFile(std::move(path)) {
  check<CheckpointError>(offset <= size_ && length <= size_ - offset, "checkpoint.read", "expected ", length,
                         " bytes at offset ", offset, ", got a file of ", size_, " bytes (file ", quote(path_.string()),
                         ")");
  begin_ = offset;
  size_ = length;
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
    const ssize_t got =
        ::pread(descriptor_, out.data(), std::min(out.size(), kFilePiece), static_cast<off_t>(begin_ + offset));
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

void sync_directory(const std::filesystem::path& directory) {
  const Descriptor descriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a directory and return EINVAL.
  if (descriptor.get() < 0 || (::fsync(descriptor.get()) != 0 && errno != EINVAL)) {
    fail_system("checkpoint.write", "sync the directory", directory, errno);
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
    fail_system("checkpoint.write", "rename the new file to", name_, errno);
  }
}

std::vector<std::filesystem::path> remove_stale_temporaries(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> removed;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.front() != '.' || name.find(temporary_mark) == std::string::npos || !entry.is_regular_file(error)) {
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
