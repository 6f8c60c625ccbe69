// JSON lines: random access to a file with one JSON value per line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include <danling/formats/detail/tensor_record.hpp>

namespace danling::inline v0::formats {

class TextFile;

struct JsonOptions {
  /// Accepts NaN, Infinity and -Infinity, which Python's `json` writes although JSON lacks them.
  bool allow_nan = false;
};

/// Parses one JSON value as a tree without tensors. Messages end with `source`, such as `file 'x', line 3`.
/// @throws DataError for invalid JSON, with the column (in bytes, from 1), and for more than 256 levels of nesting,
/// repeated keys, integers beyond int64, and numbers beyond float64
RecordTree parse_json(std::string_view text, std::string_view source, const JsonOptions& options = {});

/// A file of JSON lines with an index (16 bytes of memory per line); skips empty lines. Maps the file; decompresses
/// gzip files into memory. Several threads may read at a time.
class JsonLinesFile {
 public:
  /// Scans the whole file for line ends. @throws DataError if the file cannot be opened or mapped, and for damaged or
  /// truncated gzip, other compressions and UTF-16
  explicit JsonLinesFile(std::filesystem::path path, const JsonOptions& options = {});
  ~JsonLinesFile();

  const std::filesystem::path& path() const;
  /// Size of the text in bytes.
  std::uint64_t bytes() const { return text_.size(); }
  const JsonOptions& options() const { return options_; }
  /// Number of records: lines that are not blank. The functions below throw a DataError for another record.
  std::int64_t size() const { return static_cast<std::int64_t>(lines_.size()); }
  /// The line number of a record, from 1.
  std::uint64_t line(std::int64_t record) const { return at(record).number; }
  /// The text of a record, without the line end.
  std::string_view text(std::int64_t record) const;
  /// Parses a record. @throws DataError as parse_json, with file and line
  RecordTree read(std::int64_t record) const;
  /// Checks that the file was not truncated, which would end the process at the next read. Queries the system at most
  /// once per millisecond, so it is cheap enough to call per record. @throws DataError if the file is shorter than at
  /// opening
  void check_size() const;

 private:
  struct Line {
    std::uint64_t begin;
    std::uint64_t number;
  };
  /// @throws DataError for an index out of range
  const Line& at(std::int64_t record) const;

  std::unique_ptr<const TextFile> file_;
  JsonOptions options_;
  std::string_view text_;
  std::vector<Line> lines_;
};

}  // namespace danling::inline v0::formats
