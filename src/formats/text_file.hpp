// TextFile: the text of a mapped file, or of a gzip'd file decompressed into memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <danling/formats/detail/mapped_file.hpp>
#include <danling/formats/table.hpp>

namespace danling::inline v0::formats {

/// Returns `line 3, column 5` for a byte of a text; both count from 1, columns in bytes. Lines end with LF, CRLF or CR.
std::string position_of(std::string_view text, const char* at);

class TextFile {
 public:
  /// @throws DataError as MappedFile, for damaged or truncated gzip, other compressions and UTF-16, and for bytes that
  /// an encoding other than UTF-8 lacks
  TextFile(std::filesystem::path path, std::string_view where, Encoding encoding = Encoding::utf8);

  const std::filesystem::path& path() const { return path_; }
  /// The text without a byte order mark. Does not validate UTF-8.
  std::string_view text() const { return text_; }
  /// See MappedFile. Queries the system at most once per millisecond.
  void check_size() const;
  void advise(Access access) const;

 private:
  void decode(std::string_view where, Encoding encoding);

  std::filesystem::path path_;
  std::optional<MappedFile> mapped_;
  std::string content_;
  std::string_view text_;
  mutable std::atomic<std::int64_t> checked_{0};  // time of the last check: nanoseconds of the steady clock
};

}  // namespace danling::inline v0::formats
