#include <formats/data_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <danling/core/error.hpp>

namespace danling::inline v0::formats {

DataFile::DataFile(std::filesystem::path path, std::string_view where) : path_(std::move(path)), where_(where) {
  const auto refuse = [&](const std::string& why) {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
    fail<DataError>(where_, "expected a readable file, got ", quote(path_.string()), ": ", why);
  };
  // O_NONBLOCK: otherwise a named pipe would block before it can be refused.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    refuse(std::generic_category().message(errno));
  }
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) {
    refuse(std::generic_category().message(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    refuse(S_ISDIR(status.st_mode) ? "it is a directory" : "it is not a regular file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

DataFile::~DataFile() { ::close(descriptor_); }

void DataFile::read(std::uint64_t offset, std::span<char> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    constexpr std::size_t most = std::size_t{1} << 30;  // one call may read at most 2 GiB
    const ssize_t got =
        ::pread(descriptor_, out.data() + done, std::min(out.size() - done, most), static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    check<DataError>(got >= 0, where_, "expected a readable file, got ", quote(path_.string()), ": ",
                     std::generic_category().message(errno));
    check<DataError>(got > 0, where_, "expected ", out.size(), " bytes at offset ", offset, ", got ", done,
                     ": the file has become shorter (file ", quote(path_.string()), ")");
    done += static_cast<std::size_t>(got);
  }
}

std::string DataFile::read_all() const {
  std::string out(static_cast<std::size_t>(size_), '\0');
  read(0, out);
  return out;
}

void DataFile::prefetch(std::uint64_t offset, std::uint64_t count) const {
  ::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(count), POSIX_FADV_WILLNEED);
}

}  // namespace danling::inline v0::formats
