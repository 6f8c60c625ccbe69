// Readable numbers, durations and tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace danling::inline v0 {

/// `0:42`, `12:05`, `1:02:03`, `2d 03:04:05`; rounded to seconds. Negative or not finite: `?`.
std::string format_duration(double seconds);
/// `1,234,567`.
std::string format_count(std::int64_t count);
/// Four decimal places, or an exponent up to 0.001 and from a million: `0.1234`, `12.5000`, `1.0e-03`, `1.235e+07`,
/// `nan`.
std::string format_number(double value);
/// Terminal columns of `text`, one per character; inexact for wide or combining characters.
std::size_t text_width(std::string_view text);

/// A table with aligned columns. Columns of only numbers are right-aligned.
class TextTable {
 public:
  enum class Style {
    /// Columns separated by two spaces, with dashes under the names.
    plain,
    /// Boxes drawn with lines.
    box,
  };

  explicit TextTable(std::vector<std::string> columns);
  /// @throws StateError when the number of cells differs from that of the columns.
  void add_row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  /// Lines separated by line feeds, none at the end.
  std::string text(Style style = Style::plain) const;

  /// `box` when the locale's variables (LC_ALL, LC_CTYPE, LANG) specify UTF-8, else `plain`.
  static Style style_of_terminal();

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace danling::inline v0
