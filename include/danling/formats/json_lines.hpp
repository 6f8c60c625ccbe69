// JSON lines: a file with one JSON value per line, read at any line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include <danling/formats/mapped_file.hpp>
#include <danling/formats/tensor_record.hpp>

namespace danling::inline v0::formats {

/// One JSON value as a tree without tensors. `source` is added to messages, such as `file 'x', line 3`.
/// @throws DataError for what is not JSON, more than 256 levels of nesting, a key that comes twice, integers that int64
/// does not hold, and numbers that float64 does not hold.
RecordTree parse_json(std::string_view text, std::string_view source);

/// The lines of a mapped file and where they begin (16 bytes of memory per line); empty lines are no records.
/// Several threads may read at a time.
class JsonLinesFile {
 public:
  /// Looks at the whole file once, for the ends of its lines. @throws DataError as MappedFile.
  explicit JsonLinesFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return file_.path(); }
  /// Of the file.
  std::uint64_t bytes() const { return file_.size(); }
  /// Lines that are not empty.
  std::int64_t size() const { return static_cast<std::int64_t>(lines_.size()); }
  /// From 1.
  std::uint64_t line(std::int64_t record) const { return at(record).number; }
  /// The text of a record, without the end of its line.
  std::string_view text(std::int64_t record) const;
  /// @throws DataError as parse_json, with file and line.
  RecordTree read(std::int64_t record) const;
  /// See MappedFile.
  void check_size() const { file_.check_size(); }

 private:
  struct Line {
    std::uint64_t begin;
    std::uint64_t number;
  };
  /// @throws DataError for a record that is not there.
  const Line& at(std::int64_t record) const;

  MappedFile file_;
  std::vector<Line> lines_;
};

}  // namespace danling::inline v0::formats
