// Tables in memory, read from CSV and JSON lines files: named columns, each of one type.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace danling::inline v0::formats {

enum class ColumnType { int64, float64, text, boolean };

/// Returns `int64`, `float64`, `text` or `bool`.
std::string_view name(ColumnType type);

/// Texts, stored in one block.
class TextColumn {
 public:
  std::size_t size() const { return ends_.size(); }
  /// Size of all texts.
  std::size_t bytes() const { return block_.size(); }
  std::string_view operator[](std::size_t row) const {
    const std::size_t begin = row == 0 ? 0 : ends_[row - 1];
    return std::string_view(block_).substr(begin, ends_[row] - begin);
  }
  void push_back(std::string_view text) {
    block_ += text;
    ends_.push_back(block_.size());
  }
  /// Appends all rows of another column.
  void append(const TextColumn& other);
  /// Reserves memory for this many characters and rows in total.
  void reserve(std::size_t bytes, std::size_t rows);

 private:
  std::string block_;
  std::vector<std::size_t> ends_;
};

/// One column. A missing value is NaN in float64 and an empty text in text; the other types have no missing values.
struct Column {
  std::string name;
  /// In the order of ColumnType; a bool is 0 or 1.
  std::variant<std::vector<std::int64_t>, std::vector<double>, TextColumn, std::vector<std::uint8_t>> values;
  /// For messages, in a column inferred to be text: the first cell that is neither a number nor missing, such as `'abc'
  /// (file 'x.csv', line 3)`. Empty for a declared type.
  std::string first_text = {};
  /// As first_text, for the first cell that is a number; empty without one.
  std::string first_number = {};

  ColumnType type() const { return static_cast<ColumnType>(values.index()); }
  std::size_t size() const;
  // Each throws a DataError for a column of another type, with the column and the cell that made it text.
  std::span<const std::int64_t> integers() const;
  std::span<const double> floats() const;
  const TextColumn& texts() const;
  std::span<const std::uint8_t> booleans() const;
};

/// Maps the rows of a table to line numbers in its file.
class RowLines {
 public:
  RowLines() = default;
  /// `jumps`: (row, line) of the first row, and of each row that is not one line below the previous row.
  RowLines(std::string file, std::vector<std::pair<std::size_t, std::uint64_t>> jumps)
      : file_(std::move(file)), jumps_(std::move(jumps)) {}

  /// The path; empty if the table is not from a file.
  const std::string& file() const { return file_; }
  /// The first line of a row, from 1; 0 if the table is not from a file.
  std::uint64_t line(std::size_t row) const;
  /// Returns `file 'x.csv', line 3` for messages, or `row 2` if the table is not from a file.
  std::string where(std::size_t row) const;

 private:
  std::string file_;
  std::vector<std::pair<std::size_t, std::uint64_t>> jumps_;
};

/// Columns of equal length.
class Table {
 public:
  Table() = default;
  /// @throws DataError for columns of unequal length or equal names
  explicit Table(std::vector<Column> columns, RowLines lines = {});

  std::size_t num_rows() const { return columns_.empty() ? 0 : columns_.front().size(); }
  const std::vector<Column>& columns() const { return columns_; }
  /// Returns the column of that name. @throws DataError, which lists the existing columns
  const Column& column(std::string_view name) const;
  const RowLines& lines() const { return lines_; }

 private:
  std::vector<Column> columns_;
  std::vector<std::size_t> by_name_;  // indices of the columns, sorted by name
  RowLines lines_;
};

/// Character encoding of a file. `latin1` is ISO 8859-1, `cp1252` is Windows' Western encoding.
enum class Encoding { utf8, latin1, cp1252 };

struct CsvOptions {
  char separator = ',';
  /// Encloses fields that contain separators, line ends or quotes; quotes inside are doubled. `'\0'`: no quoting.
  char quote = '"';
  /// The first row contains the names of the columns.
  bool header = true;
  /// Names that replace those of the header, one per column. Without names and header, columns are called "0", "1", ...
  std::vector<std::string> names = {};
  /// Skips lines that begin with this character; none by default.
  char comment = '\0';
  /// Texts that mean a missing number or bool, besides an empty field; text columns keep them.
  std::vector<std::string> missing = {"NA", "N/A", "NaN", "nan", "null", "NULL"};
  /// Types of columns by name; the others are inferred from the whole file.
  std::map<std::string, ColumnType> types = {};
  /// Encoding of the file; texts in the table are UTF-8.
  Encoding encoding = Encoding::utf8;
  /// Number of reading threads, including the calling one; 0: one per core. Does not affect the table.
  std::int64_t num_threads = 0;
};

/// Reads a CSV file (RFC 4180), plain or gzip'd, with or without a byte order mark; lines end with LF, CRLF or CR.
/// Skips empty lines and decompresses gzip files into memory.
///
/// Types of columns: only integers: int64 (float64 if some are missing or do not fit); only numbers, including inf and
/// nan: float64; only true or false (also True, TRUE, ...): bool (float64 of 0 and 1 if some are missing); no values:
/// float64; otherwise text. Blanks around numbers are allowed.
/// @throws DataError with file, line, column and text for a value outside a declared type, missing values of a declared
/// int64 or bool, rows of unequal length, unclosed quotes, bytes outside the encoding, and NUL bytes; also for damaged
/// or truncated gzip, other compressions, and an empty file unless `names` are given without a header. ConfigError for
/// a separator that is the quote or a line end, a negative `num_threads`, repeated names, and types for columns that do
/// not exist
Table read_csv(const std::filesystem::path& path, const CsvOptions& options = {});

/// Formats a table as CSV with a header. Writes numbers as their shortest exact text, NaN as an empty field (as `nan`
/// in a table of one column, whose empty lines would be skipped), and texts in quotes if needed. read_csv returns an
/// equal table if it is given the types of the columns: CSV has none, so by itself it reads a text column such as
/// `007`, `012` as numbers.
std::string to_csv(const Table& table, char separator = ',');

struct JsonTableOptions {
  /// Columns as paths into the objects: `a.b` is a member of that name, or else member b of member a. Empty: all
  /// members of all lines except lists, in the order of their first occurrence.
  std::vector<std::string> columns = {};
  /// Types of columns by name; the others are inferred from the values.
  std::map<std::string, ColumnType> types = {};
  /// See JsonOptions.
  bool allow_nan = false;
  /// Number of reading threads, including the calling one; 0: one per core. Does not affect the table.
  std::int64_t num_threads = 0;
};

/// Reads a file with one JSON object per line, plain or gzip'd; skips empty lines. Null and absent members are missing
/// values.
/// @throws DataError with file and line for invalid JSON, a value that is not an object, or a type that differs from
/// the lines before. ConfigError for a negative `num_threads`, repeated columns, and types for columns that do not
/// exist
Table read_json_lines(const std::filesystem::path& path, const JsonTableOptions& options = {});

}  // namespace danling::inline v0::formats
