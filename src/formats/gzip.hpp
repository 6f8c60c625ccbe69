// Decompresses gzip files and detects compressed files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <formats/data_file.hpp>

namespace danling::inline v0::formats {

/// Returns `gzip`, `Zstandard`, `bzip2`, `xz` or `zip` by the first bytes of a file; empty for anything else.
std::string_view compression_of(std::string_view bytes);

/// Decompresses one or more gzip members piece by piece. Reports the end only after a correct last checksum.
class GzipReader {
 public:
  explicit GzipReader(const DataFile& file);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  /// Reads up to `count` further bytes; fewer only at the end. @throws DataError for damage
  std::size_t read(char* out, std::size_t count);
  /// Upper bound of the content's size.
  std::uint64_t limit() const;
  /// True if the content ended before its checksum.
  bool cut_off() const { return cut_off_; }

 private:
  struct Stream;
  void refill();
  void next_member();

  const DataFile& file_;
  std::unique_ptr<Stream> stream_;
  std::uint64_t offset_ = 0;
  std::uint64_t total_ = 0;
  bool at_end_ = false;
  bool cut_off_ = false;
};

/// Decompresses the whole file. @throws DataError for damaged or truncated files
std::string read_gzip(const DataFile& file);

}  // namespace danling::inline v0::formats
