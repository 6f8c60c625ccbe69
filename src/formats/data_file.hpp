// DataFile: positioned reads of a data file; errors are DataErrors with its path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace danling::inline v0::formats {

/// If the file is truncated while it is open, reads throw; a mapped file would raise a signal. Several threads may read
/// at a time. `where` is the `component.operation` of messages.
class DataFile {
 public:
  /// @throws DataError with the system's reason if it cannot be opened or is not a regular file
  DataFile(std::filesystem::path path, std::string_view where);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::string& where() const { return where_; }
  /// Bytes in the file at opening.
  std::uint64_t size() const { return size_; }

  /// Fills `out` from `offset`. @throws DataError if the file is shorter or cannot be read
  void read(std::uint64_t offset, std::span<char> out) const;
  /// Reads the whole file.
  std::string read_all() const;
  /// Hints that this part will be read.
  void prefetch(std::uint64_t offset, std::uint64_t count) const;

 private:
  std::filesystem::path path_;
  std::string where_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace danling::inline v0::formats
