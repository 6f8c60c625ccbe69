#include <danling/telemetry/text.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <danling/core/error.hpp>

namespace danling::inline v0 {
namespace {

template <class... Args>
std::string print(const char* format, Args... args) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), format, args...);
  return text.data();
}

std::string repeat(std::string_view text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) {
    out += text;
  }
  return out;
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
    return print("%lldd %02lld:%02lld:%02lld", days, hours, minutes, rest);
  }
  return hours > 0 ? print("%lld:%02lld:%02lld", hours, minutes, rest) : print("%lld:%02lld", minutes, rest);
}

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
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
  std::array<char, 16> digits{};
  std::string text(
      digits.data(),
      std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::scientific, 3).ptr);
  const auto exponent = text.find('e');
  auto end = exponent;
  while (text[end - 1] == '0' && text[end - 2] != '.') {
    --end;
  }
  return text.erase(end, exponent - end);
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> units = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) {
    return concat(bytes, " B");
  }
  double value = static_cast<double>(bytes) / 1024.0;
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < units.size()) {
    value /= 1024.0;
    ++unit;
  }
  return concat(to_fixed(value, 1), " ", units.at(unit));
}

TextTable::TextTable(std::vector<std::string> columns) : columns_(std::move(columns)) {}

void TextTable::add_row(std::vector<std::string> cells) {
  check<StateError>(cells.size() == columns_.size(), "table.add_row", "expected ", columns_.size(), " cells, got ",
                    cells.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(Style style) const {
  std::vector<std::size_t> widths;
  std::vector<bool> right;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    std::size_t width = text_width(columns_[column]);
    bool numeric = !rows_.empty();
    for (const auto& row : rows_) {
      width = std::max(width, text_width(row[column]));
      numeric = numeric && is_numeric(row[column]);
    }
    widths.push_back(width);
    right.push_back(numeric);
  }

  const bool box = style == Style::box;
  std::vector<std::string> lines;
  const auto rule = [&](std::string_view left, std::string_view middle, std::string_view end, std::string_view dash) {
    std::string line(left);
    for (std::size_t column = 0; column < widths.size(); ++column) {
      line += column == 0 ? "" : middle;
      line += repeat(dash, widths[column] + (box ? 2 : 0));
    }
    lines.push_back(line + std::string(end));
  };
  const auto row = [&](const std::vector<std::string>& cells) {
    std::string line = box ? "│ " : "";
    for (std::size_t column = 0; column < cells.size(); ++column) {
      const std::string gap(widths[column] - text_width(cells[column]), ' ');
      line += column == 0 ? "" : (box ? " │ " : "  ");
      line += right[column] ? gap + cells[column] : cells[column] + gap;
    }
    line += box ? " │" : "";
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(line);
  };

  if (box) {
    rule("┌", "┬", "┐", "─");
  }
  row(columns_);
  box ? rule("├", "┼", "┤", "─") : rule("", "  ", "", "-");
  for (const auto& cells : rows_) {
    row(cells);
  }
  if (box) {
    rule("└", "┴", "┘", "─");
  }
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
