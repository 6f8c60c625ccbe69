// InputFile: positioned reads of a regular file.
#include <danling/formats/file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace danling::inline v0::formats {
namespace {

// Bytes per call, which may read at most 2 GiB.
constexpr std::size_t file_piece = std::size_t{1} << 26;

std::string reason_of(int error) { return std::generic_category().message(error); }

[[noreturn]] void refuse_file(const std::filesystem::path& path, std::string_view reason, const FileErrors& errors) {
  errors.fail("expected a readable file, got ", quote(path.string()), ": ", reason);
}

}  // namespace

void FileErrors::fail_system(std::string_view what, const std::filesystem::path& path, int error) const {
  fail("expected to ", what, " ", quote(path.string()), ", got errno ", error, " (", reason_of(error), ")");
}

FileErrors read_errors() { return FileErrors::of<CheckpointError>("checkpoint.read"); }
FileErrors write_errors() { return FileErrors::of<CheckpointError>("checkpoint.write"); }

// O_NONBLOCK: otherwise a pipe without a writer would block instead of being refused.
InputFile::InputFile(std::filesystem::path path, FileErrors errors)
    : path_(std::move(path)),
      errors_(std::move(errors)),
      descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status{};
  if (descriptor() < 0 || ::fstat(descriptor(), &status) != 0) {
    refuse(reason_of(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    refuse(S_ISDIR(status.st_mode) ? "it is a directory" : "it is not a regular file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::InputFile(std::filesystem::path path, std::uint64_t offset, std::uint64_t length)
    : InputFile(std::move(path)) {
  check_range(offset, length);
  whole_ = length == size_;
  begin_ = offset;
  size_ = length;
}

void InputFile::refuse(std::string_view reason) const { refuse_file(path_, reason, errors_); }

void InputFile::check_range(std::uint64_t offset, std::uint64_t count) const {
  if (offset > size_ || count > size_ - offset) {
    errors_.fail("expected ", count, " bytes at offset ", offset, ", got a file of ", size_, " bytes (file ",
                 quote(path_.string()), ")");
  }
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  check_range(offset, out.size());
  while (!out.empty()) {
    const ssize_t got =
        ::pread(descriptor(), out.data(), std::min(out.size(), file_piece), static_cast<off_t>(begin_ + offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      refuse(reason_of(errno));
    }
    if (got == 0) {
      errors_.fail("expected ", out.size(), " more bytes at offset ", offset,
                   ", got the end of a file that became shorter (file ", quote(path_.string()), ")");
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

std::string InputFile::text(std::uint64_t offset, std::uint64_t count) const {
  check_range(offset, count);  // before the allocation
  std::string out(static_cast<std::size_t>(count), '\0');
  read(offset, out);
  return out;
}

void InputFile::prefetch(std::uint64_t offset, std::uint64_t count) const {
  if (offset < size_ && count > 0) {  // to the system, no bytes mean all
    ::posix_fadvise(descriptor(), static_cast<off_t>(begin_ + offset),
                    static_cast<off_t>(std::min(count, size_ - offset)), POSIX_FADV_WILLNEED);
  }
}

std::string read_to_end(const std::filesystem::path& path, const FileErrors& errors) {
  const danling::detail::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string out;
  std::array<char, 16384> block;
  ssize_t got = file.get() < 0 ? -1 : 0;
  while (file.get() >= 0 &&
         ((got = ::read(file.get(), block.data(), block.size())) > 0 || (got < 0 && errno == EINTR))) {
    if (got > 0) {
      out.append(block.data(), static_cast<std::size_t>(got));
    }
  }
  if (got < 0) {
    refuse_file(path, reason_of(errno), errors);
  }
  return out;
}

}  // namespace danling::inline v0::formats
