#include <danling/telemetry/text.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <danling/core/error.hpp>

#include <core/fmt.hpp>

namespace danling::inline v0 {
namespace {

using Row = std::vector<std::string>;

std::vector<std::size_t> widths_of(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], text_width(row[column]));
    }
  }
  return widths;
}

std::string padded(const std::string& cell, std::size_t width, bool right) {
  const std::size_t gap = width - text_width(cell);
  return format_text("{:{}}{}{:{}}", "", right ? gap : 0, cell, "", right ? 0 : gap);
}

bool is_numeric(std::string_view cell) {
  return cell.empty() || cell == "-" || cell == "nan" || cell == "inf" || cell == "-inf" ||
         (cell.find_first_of("0123456789") != std::string_view::npos &&
          cell.find_first_not_of("0123456789.,+-e%") == std::string_view::npos);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || !std::isfinite(seconds) || seconds > 1e12) {
    return "?";
  }
  const auto whole = static_cast<long long>(std::llround(seconds));
  const long long days = whole / 86400;
  const long long hours = whole / 3600 % 24;
  const long long minutes = whole / 60 % 60;
  const long long rest = whole % 60;
  if (days > 0) {
    return format_text("{}d {:02}:{:02}:{:02}", days, hours, minutes, rest);
  }
  return hours > 0 ? format_text("{}:{:02}:{:02}", hours, minutes, rest) : format_text("{}:{:02}", minutes, rest);
}

std::string format_count(std::int64_t count) {
  const auto size = static_cast<std::uint64_t>(count);
  return count < 0 ? "-" + detail::group_digits(0 - size) : detail::group_digits(size);
}

std::string format_number(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value)) {
    return to_text(value);
  }
  if (size == 0 || (size > 1e-3 && size < 1e6)) {
    return to_fixed(value, 4);
  }
  // Removes trailing zeros of the fraction, but keeps one digit: 1.0e-03.
  std::string text = format_text("{:.3e}", value);
  const auto exponent = text.find('e');
  auto end = exponent;
  while (text[end - 1] == '0' && text[end - 2] != '.') {
    --end;
  }
  return text.erase(end, exponent - end);
}

TextTable::TextTable(std::vector<std::string> columns) : columns_(std::move(columns)) {}

void TextTable::add_row(std::vector<std::string> cells) {
  check<StateError>(cells.size() == columns_.size(), "table.add_row", "expected ", columns_.size(), " cells, got ",
                    cells.size());
  rows_.push_back(std::move(cells));
}

std::string align_columns(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right) {
  const std::vector<std::size_t> widths = widths_of(rows);
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    std::string& line = lines.emplace_back();
    for (std::size_t column = 0; column < row.size(); ++column) {
      line += column == 0 ? "" : "  ";
      line += padded(row[column], widths[column], column < right.size() && right[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
  }
  return join(lines, "\n");
}

std::string TextTable::text(Style style) const {
  std::vector<Row> rows = {columns_};
  rows.insert(rows.end(), rows_.begin(), rows_.end());
  const std::vector<std::size_t> widths = widths_of(rows);
  std::vector<bool> right;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    right.push_back(!rows_.empty() &&
                    std::all_of(rows_.begin(), rows_.end(), [&](const Row& row) { return is_numeric(row[column]); }));
  }
  if (style == Style::plain) {
    Row rule;
    for (const std::size_t width : widths) {
      rule.push_back(format_text("{:-<{}}", "", width));
    }
    rows.insert(rows.begin() + 1, std::move(rule));
    return align_columns(rows, right);
  }
  const auto rule = [&](std::string_view left, std::string_view middle, std::string_view end) {
    Row dashes;
    for (const std::size_t width : widths) {
      dashes.push_back(format_text("{:─<{}}", "", width + 2));
    }
    return concat(left, join(dashes, middle), end);
  };
  std::vector<std::string> lines = {rule("┌", "┬", "┐")};
  for (Row& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      row[column] = padded(row[column], widths[column], right[column]);
    }
    lines.push_back(concat("│ ", join(row, " │ "), " │"));
  }
  lines.insert(lines.begin() + 2, rule("├", "┼", "┤"));
  lines.push_back(rule("└", "┴", "┘"));
  return join(lines, "\n");
}

TextTable::Style TextTable::style_of_terminal() { return locale_is_utf8() ? Style::box : Style::plain; }

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') {
      const std::string_view locale = value;
      return locale.find("UTF-8") != std::string_view::npos || locale.find("utf8") != std::string_view::npos ||
             locale.find("UTF8") != std::string_view::npos || locale.find("utf-8") != std::string_view::npos;
    }
  }
  return false;
}

}  // namespace danling::inline v0
