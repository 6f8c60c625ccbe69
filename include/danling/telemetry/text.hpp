// Formats numbers, durations and tables for readers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <danling/core/format.hpp>

namespace danling::inline v0 {

/// Returns `0:42`, `12:05`, `1:02:03` or `2d 03:04:05`, rounded to seconds; `?` if negative or not finite.
std::string format_duration(double seconds);
/// Returns a text such as `1,234,567`.
std::string format_count(std::int64_t count);
/// Formats with four decimal places, or with an exponent if the magnitude is at most 0.001 or at least a million:
/// `0.0000`, `0.1234`, `12.5000`, `1.0e-03`, `1.235e+07`, `nan`.
std::string format_number(double value);
/// Returns the terminal columns of UTF-8 text: 2 for an East Asian wide character or an emoji, 0 for a combining
/// character, 1 for a control character or invalid byte. An emoji of several characters counts once, as in newer
/// terminals.
std::size_t text_width(std::string_view text);
/// Returns the beginning of `text` that fits `columns`, as one line: control characters become spaces, invalid bytes
/// U+FFFD.
std::string cut_to_width(std::string_view text, std::size_t columns);

/// Returns rows as lines with aligned columns, two spaces apart; `right` marks the right-aligned ones. Line feeds
/// separate the lines; there is none at the end.
std::string align_columns(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right = {});

/// Returns true if the locale (LC_ALL, LC_CTYPE, LANG) specifies UTF-8.
bool locale_is_utf8();

/// A table with aligned columns. Columns with only numbers are right-aligned.
class TextTable {
 public:
  enum class Style {
    /// Two spaces between columns, dashes under the names.
    plain,
    /// Lines around cells.
    box,
  };

  explicit TextTable(std::vector<std::string> columns);
  /// @throws StateError if the numbers of cells and columns differ
  void add_row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  /// Returns the table. Line feeds separate the lines; there is none at the end.
  std::string text(Style style = Style::plain) const;

  /// Returns `box` if locale_is_utf8(), else `plain`.
  static Style style_of_terminal();

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace danling::inline v0
