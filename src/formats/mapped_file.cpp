#include <danling/formats/detail/mapped_file.hpp>

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace danling::inline v0::formats {

MappedFile::MappedFile(std::filesystem::path path, Access access, std::string_view where)
    : InputFile(std::move(path), FileErrors::of<DataError>(where)) {
  if (size() == 0) {
    return;  // an empty file cannot be mapped
  }
  void* const mapped = ::mmap(nullptr, static_cast<std::size_t>(size()), PROT_READ, MAP_SHARED, descriptor(), 0);
  if (mapped == MAP_FAILED) {
    refuse(concat("it cannot be mapped: ", std::generic_category().message(errno)));
  }
  data_ = static_cast<const std::byte*>(mapped);
  if (access != Access::normal) {
    advise(access);
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size()));
  }
}

std::span<const std::byte> MappedFile::bytes(std::uint64_t offset, std::uint64_t count) const {
  check_range(offset, count);
  return bytes().subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count));
}

void MappedFile::check_size() const {
  struct stat status{};
  if (::fstat(descriptor(), &status) != 0) {
    refuse(std::generic_category().message(errno));
  }
  if (const auto now = static_cast<std::uint64_t>(status.st_size); now < size()) {
    errors().fail("expected a file of ", size(), " bytes as when it was opened, got ", now,
                  "; replace data files by renaming, never in place (file ", quote(path().string()), ")");
  }
}

void MappedFile::advise(Access access) const {
  if (data_ != nullptr) {
    const int advice = access == Access::random       ? MADV_RANDOM
                       : access == Access::sequential ? MADV_SEQUENTIAL
                                                      : MADV_NORMAL;
    ::madvise(const_cast<std::byte*>(data_), static_cast<std::size_t>(size()), advice);
  }
}

}  // namespace danling::inline v0::formats
