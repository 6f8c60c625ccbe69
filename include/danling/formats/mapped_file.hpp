// A file mapped into memory for reading, for data that is larger than memory or read at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace danling::inline v0::formats {

/// How the pages of a mapped file will be read; the system reads ahead accordingly.
enum class Access { normal, sequential, random };

/// A regular file, mapped as it was when it was opened; it costs addresses and a descriptor, no memory of the process.
/// Several threads may read at a time. `where` begins the messages, as `component.operation`.
///
/// A file that becomes shorter while it is mapped ends the process with SIGBUS at the first read of a page that is
/// gone. Readers call `check_size()` before each batch, which turns that into an error unless it happens within the
/// batch; so replace data files by renaming new ones over them, which does not touch what is mapped, and never truncate
/// or rewrite them in place. A device that fails while a page is read ends the process the same way.
class MappedFile {
 public:
  /// @throws DataError with the system's reason when it cannot be opened or mapped, or is not a regular file.
  explicit MappedFile(std::filesystem::path path, Access access = Access::normal, std::string_view where = "data.file");
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Bytes in the file when it was opened.
  std::uint64_t size() const { return size_; }
  /// The whole file.
  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }
  /// A part of it. @throws DataError when it is not inside the file.
  std::span<const std::byte> bytes(std::uint64_t offset, std::uint64_t count) const;
  /// The whole file as text.
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), static_cast<std::size_t>(size_)}; }

  /// Asks the system for the file's size. @throws DataError when it is shorter than it was.
  void check_size() const;
  /// How the file will be read from now on; a hint.
  void advise(Access access) const;
  /// Lets the system read a part of the file in the background. Asked for all records of a batch before the first is
  /// copied, they come from the device side by side and in large pieces. A hint; costs about 1 us per 16 KiB.
  void will_read(std::uint64_t offset, std::uint64_t count) const;

 private:
  std::filesystem::path path_;
  std::string where_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  const std::byte* data_ = nullptr;
};

}  // namespace danling::inline v0::formats
