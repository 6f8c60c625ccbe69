// CsvRows: reads rows of CSV into columns.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <danling/formats/table.hpp>

#include <formats/csv_fields.hpp>
#include <formats/table_builder.hpp>

namespace danling::inline v0::formats {

/// The text and options shared by all blocks of a file.
struct CsvSource {
  const CsvOptions& options;
  std::string path;
  std::string_view text;
  std::unordered_set<std::string_view> missing = {};
  /// True if one of the missing values begins like a number, such as -999.
  bool numeric_missing = false;
  std::vector<std::string> names = {};

  /// @throws DataError for NUL bytes and bytes that are not UTF-8
  void check_text(const char* begin, const char* end) const;
};

struct CsvCell {
  std::uint64_t line = 0;  // from 1; 0 for none
  std::string text = {};
};

/// A column of a part.
struct CsvColumn {
  enum Kind { number, boolean, text };

  ColumnBuilder builder;
  /// The common type of the values is text, but the earlier texts are lost.
  bool mixed = false;
  /// The first cell of each kind, if the type is inferred.
  std::array<CsvCell, 3> first = {};

  std::optional<ColumnType> type() const { return mixed ? ColumnType::text : builder.type(); }
};

/// The rows that begin in a part of the text, as columns.
class CsvRows {
 public:
  explicit CsvRows(const CsvSource& source);

  /// Reads the rows that begin in [begin, stop). `line` is the line number of `begin`; the text ends at `end`. @throws
  /// DataError for the first invalid row, or for earlier bytes that are not text
  void read(const char* begin, std::uint64_t line, const char* stop, const char* end);
  /// Reads `columns` again as text; leaves the others empty.
  void read_texts(const std::vector<std::size_t>& columns);

  /// Positions and lines of the first row, and of the row after the last; `end` if there is none.
  const char* first() const { return first_; }
  const char* next() const { return next_; }
  std::uint64_t first_line() const { return first_line_; }
  std::uint64_t next_line() const { return next_line_; }

  std::size_t size() const { return rows_; }
  /// Moves the columns read so far out; keeps the number of rows and the line numbers.
  std::vector<CsvColumn> take_columns() { return std::exchange(columns_, {}); }
  /// (row, line) pairs for RowLines.
  const std::vector<std::pair<std::size_t, std::uint64_t>>& jumps() const { return jumps_; }

 private:
  void read_row(CsvFields& fields);
  void add(const CsvFields& fields, std::size_t c, std::string_view field);
  bool is_missing(std::string_view text) const;

  const CsvSource& source_;
  std::vector<CsvColumn> columns_;
  std::vector<std::pair<std::size_t, std::uint64_t>> jumps_;
  std::size_t rows_ = 0;
  const char* first_ = nullptr;
  const char* next_ = nullptr;
  std::uint64_t first_line_ = 1;
  std::uint64_t next_line_ = 1;
};

}  // namespace danling::inline v0::formats
