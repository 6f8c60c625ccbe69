// A file mapped into memory for reading, for data that is larger than memory or read at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace danling::inline v0::formats {

/// Access pattern of a mapped file; determines the system's read-ahead.
enum class Access { normal, sequential, random };

/// A regular file, mapped with its size at opening; costs addresses and a descriptor, no memory of the process. Several
/// threads may read at a time. `where` begins the messages, as `component.operation`.
///
/// If a mapped file is truncated, reading a lost page ends the process with SIGBUS. Readers call `check_size()` before
/// each batch, which throws an error instead, unless the truncation happens within the batch. Replace data files by
/// renaming new ones over them, which does not affect mappings; never truncate or rewrite them in place. A device error
/// while a page is read also ends the process.
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

  /// Queries the file's size. @throws DataError when it is shorter than before.
  void check_size() const;
  /// Sets the future access pattern; a hint.
  void advise(Access access) const;
  /// Prefetches a part of the file in the background. Called for all records of a batch before the first copy, it makes
  /// the device read them in parallel and in large pieces. A hint; costs about 1 us per 16 KiB.
  void prefetch(std::uint64_t offset, std::uint64_t count) const;

 private:
  std::filesystem::path path_;
  std::string where_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  const std::byte* data_ = nullptr;
};

}  // namespace danling::inline v0::formats
