// A data file open for positioned reads; its errors are DataErrors that name it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace danling::inline v0::formats {

/// Unlike for a mapped file, truncation while it is open is an error, not a signal. Several threads may read at a time.
/// `where` begins the messages, as `component.operation`.
class DataFile {
 public:
  /// @throws DataError with the system's reason when it cannot be opened or is not a regular file.
  DataFile(std::filesystem::path path, std::string_view where);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::string& where() const { return where_; }
  /// Bytes in the file when it was opened.
  std::uint64_t size() const { return size_; }

  /// Fills `out` from `offset`. @throws DataError when the file ends before, or cannot be read.
  void read(std::uint64_t offset, std::span<char> out) const;
  /// All its bytes.
  std::string read_all() const;
  /// Prefetches this part.
  void prefetch(std::uint64_t offset, std::uint64_t count) const;

 private:
  std::filesystem::path path_;
  std::string where_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace danling::inline v0::formats
