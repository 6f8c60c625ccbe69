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
/// `512 B`, `45.2 MiB`.
std::string format_bytes(std::uint64_t bytes);
/// Terminal columns of `text`, which is UTF-8: 2 for an East Asian wide character or an emoji, 0 for a combining one.
/// An emoji of several characters counts once, as newer terminals show it. A control character or stray byte counts 1.
std::size_t text_width(std::string_view text);
/// The beginning of `text` that fits `columns`, as one line without control characters, which become spaces; stray
/// bytes become U+FFFD.
std::string cut_to_width(std::string_view text, std::size_t columns);

/// Whether the locale's variables (LC_ALL, LC_CTYPE, LANG) specify UTF-8.
bool locale_is_utf8();

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

  /// `box` when locale_is_utf8(), else `plain`.
  static Style style_of_terminal();

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace danling::inline v0
