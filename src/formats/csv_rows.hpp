// Rows of CSV on their way into columns.
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

#include "csv_fields.hpp"
#include "table_builder.hpp"

namespace danling::inline v0::formats {

/// The text and options that all blocks of a file share.
struct CsvSource {
  const CsvOptions& options;
  std::string path;
  std::string_view text;
  std::unordered_set<std::string_view> missing = {};
  /// Whether what begins as a number may stand for a missing value, such as -999.
  bool numeric_missing = false;
  std::vector<std::string> names = {};

  /// @throws DataError where the bytes are no UTF-8 or have a NUL.
  void check_text(const char* begin, const char* end) const;
};

struct CsvCell {
  std::uint64_t line = 0;  // from 1; 0 where there is none
  std::string text = {};
};

/// A column of a part.
struct CsvColumn {
  enum Kind { number, boolean, text };

  ColumnBuilder builder;
  /// Its values have no type but text in common, and the texts of earlier ones are gone.
  bool mixed = false;
  /// The first cell of each kind, where the type is inferred.
  std::array<CsvCell, 3> first = {};

  std::optional<ColumnType> type() const { return mixed ? ColumnType::text : builder.type(); }
};

/// The rows that begin in a part of the text, as columns.
class CsvRows {
 public:
  explicit CsvRows(const CsvSource& source);

  /// Reads the rows that begin from `begin` on and before `stop`. `line` is that of `begin`; the text counts as ended
  /// at `end`. @throws DataError for the first that is no row, or for earlier bytes that are no text.
  void read(const char* begin, std::uint64_t line, const char* stop, const char* end);
  /// Reads `columns` once more, as texts; the others are empty then.
  void read_texts(const std::vector<std::size_t>& columns);

  /// Where the first row begins and where the next one would: at `end` where there is none. And their lines.
  const char* first() const { return first_; }
  const char* next() const { return next_; }
  std::uint64_t first_line() const { return first_line_; }
  std::uint64_t next_line() const { return next_line_; }

  std::size_t size() const { return rows_; }
  /// Gives the columns read so far away; the number of rows and where lines begin are kept.
  std::vector<CsvColumn> take_columns() { return std::exchange(columns_, {}); }
  /// (row, line) as RowLines has them.
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
