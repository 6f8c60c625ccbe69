// JSON lines: a file with one JSON value per line, read at any line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include <danling/formats/tensor_record.hpp>

namespace danling::inline v0::formats {

class TextFile;

struct JsonOptions {
  /// Takes NaN, Infinity and -Infinity, which JSON does not have and Python's `json` writes.
  bool allow_nan = false;
};

/// One JSON value as a tree without tensors. `source` is added to messages, such as `file 'x', line 3`.
/// @throws DataError with the column, in bytes from 1, for what is not JSON, more than 256 levels of nesting, a key
/// that comes twice, integers that int64 does not hold, and numbers that float64 does not hold.
RecordTree parse_json(std::string_view text, std::string_view source, const JsonOptions& options = {});

/// The lines of a file and where they begin (16 bytes of memory per line); empty lines are no records. The file is
/// mapped; one of gzip is decompressed into memory. Several threads may read at a time.
class JsonLinesFile {
 public:
  /// Looks at the whole file once, for the ends of its lines. @throws DataError as MappedFile, and for damaged or
  /// truncated gzip, other compressions and UTF-16.
  explicit JsonLinesFile(std::filesystem::path path, const JsonOptions& options = {});
  ~JsonLinesFile();

  const std::filesystem::path& path() const;
  /// Of the text.
  std::uint64_t bytes() const { return text_.size(); }
  const JsonOptions& options() const { return options_; }
  /// Lines that are not empty.
  std::int64_t size() const { return static_cast<std::int64_t>(lines_.size()); }
  /// From 1.
  std::uint64_t line(std::int64_t record) const { return at(record).number; }
  /// The text of a record, without the end of its line.
  std::string_view text(std::int64_t record) const;
  /// @throws DataError as parse_json, with file and line.
  RecordTree read(std::int64_t record) const;
  /// See MappedFile. Asks the system once in a millisecond at most, so that it can be called for each record.
  void check_size() const;

 private:
  struct Line {
    std::uint64_t begin;
    std::uint64_t number;
  };
  /// @throws DataError for a record that is not there.
  const Line& at(std::int64_t record) const;

  std::unique_ptr<const TextFile> file_;
  JsonOptions options_;
  std::string_view text_;
  std::vector<Line> lines_;
};

}  // namespace danling::inline v0::formats
