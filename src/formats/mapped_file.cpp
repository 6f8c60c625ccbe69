#include <danling/formats/detail/mapped_file.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <danling/core/error.hpp>

namespace danling::inline v0::formats {
namespace {

std::string reason_of(int error) { return std::generic_category().message(error); }

}  // namespace

MappedFile::MappedFile(std::filesystem::path path, Access access, std::string_view where)
    : path_(std::move(path)), where_(where) {
  const auto refuse = [&](const std::string& why) {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
    fail<DataError>(where_, "expected a readable file, got ", quote(path_.string()), ": ", why);
  };
  // O_NONBLOCK: otherwise a named pipe would block before it can be refused.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    refuse(reason_of(errno));
  }
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) {
    refuse(reason_of(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    refuse(S_ISDIR(status.st_mode) ? "it is a directory" : "it is not a regular file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  if (size_ == 0) {
    return;  // an empty file cannot be mapped
  }
  void* const mapped = ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, descriptor_, 0);
  if (mapped == MAP_FAILED) {
    refuse(concat("it cannot be mapped: ", reason_of(errno)));
  }
  data_ = static_cast<const std::byte*>(mapped);
  if (access != Access::normal) {
    advise(access);
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_));
  }
  ::close(descriptor_);
}

std::span<const std::byte> MappedFile::bytes(std::uint64_t offset, std::uint64_t count) const {
  check<DataError>(offset <= size_ && count <= size_ - offset, where_, "expected ", count, " bytes at offset ", offset,
                   ", got a file of ", size_, " bytes (file ", quote(path_.string()), ")");
  return bytes().subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count));
}

void MappedFile::check_size() const {
  struct stat status{};
  check<DataError>(::fstat(descriptor_, &status) == 0, where_, "expected a readable file, got ", quote(path_.string()),
                   ": ", reason_of(errno));
  const auto now = static_cast<std::uint64_t>(status.st_size);
  check<DataError>(now >= size_, where_, "expected a file of ", size_, " bytes as when it was opened, got ", now,
                   "; replace data files by renaming, never in place (file ", quote(path_.string()), ")");
}

void MappedFile::advise(Access access) const {
  if (data_ != nullptr) {
    const int advice = access == Access::random       ? MADV_RANDOM
                       : access == Access::sequential ? MADV_SEQUENTIAL
                                                      : MADV_NORMAL;
    ::madvise(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_), advice);
  }
}

void MappedFile::prefetch(std::uint64_t offset, std::uint64_t count) const {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (offset >= size_ || count == 0) {
    return;
  }
  const std::uint64_t begin = offset / page * page;
  const std::uint64_t end = offset + std::min(count, size_ - offset);
  ::madvise(const_cast<std::byte*>(data_ + begin), static_cast<std::size_t>(end - begin), MADV_WILLNEED);
}

}  // namespace danling::inline v0::formats
