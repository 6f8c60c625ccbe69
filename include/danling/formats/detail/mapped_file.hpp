// A memory-mapped file for reading: for data larger than memory, or for random access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace danling::inline v0::formats {

/// Access pattern of a mapped file; controls the system's read-ahead.
enum class Access { normal, sequential, random };

/// Maps a regular file with its size at opening. Costs address space and a descriptor, no memory of the process.
/// Several threads may read at a time. `where` is the `component.operation` of messages.
///
/// If a mapped file is truncated, reading a lost page ends the process with SIGBUS. Readers call `check_size()` before
/// each batch; it throws instead, unless the file is truncated during the batch. To replace a data file, rename a new
/// one over it, which does not affect mappings; never truncate or rewrite it in place. A device error during a page
/// read also ends the process.
class MappedFile {
 public:
  /// @throws DataError with the system's reason if it cannot be opened or mapped, or is not a regular file
  explicit MappedFile(std::filesystem::path path, Access access = Access::normal, std::string_view where = "data.file");
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Bytes in the file at opening.
  std::uint64_t size() const { return size_; }
  /// The whole file.
  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }
  /// A part of the file. @throws DataError if it is not inside the file
  std::span<const std::byte> bytes(std::uint64_t offset, std::uint64_t count) const;
  /// The whole file as text.
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), static_cast<std::size_t>(size_)}; }

  /// Queries the file's size. @throws DataError if the file is shorter than at opening
  void check_size() const;
  /// Hints the access pattern of later reads.
  void advise(Access access) const;
  /// Hints that a part of the file will be read; costs about 1 us per 16 KiB. Call it for all records of a batch before
  /// the first copy: the device then reads them in parallel and in large pieces.
  void prefetch(std::uint64_t offset, std::uint64_t count) const;

 private:
  std::filesystem::path path_;
  std::string where_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  const std::byte* data_ = nullptr;
};

}  // namespace danling::inline v0::formats
