// Writes tables as CSV text.
#include <cmath>

#include <danling/core/error.hpp>
#include <danling/formats/table.hpp>

namespace danling::inline v0::formats {
namespace {

std::string field_of(std::string_view text, char separator, bool alone) {
  const bool plain = text.find_first_of("\"\r\n") == std::string_view::npos &&
                     text.find(separator) == std::string_view::npos && !(alone && text.empty());
  if (plain) {
    return std::string(text);
  }
  std::string out = "\"";
  for (const char c : text) {
    out += c;
    if (c == '"') {
      out += c;
    }
  }
  return out + '"';
}

std::string cell_of(const Column& column, std::size_t row, char separator, bool alone) {
  switch (column.type()) {
    case ColumnType::int64:
      return to_text(column.integers()[row]);
    case ColumnType::float64: {
      const double value = column.floats()[row];
      return std::isnan(value) && !alone ? std::string() : to_text(value);  // alone: an empty line would be skipped
    }
    case ColumnType::boolean:
      return to_text(column.booleans()[row] != 0);
    case ColumnType::text:
      break;
  }
  return field_of(column.texts()[row], separator, alone);
}

}  // namespace

std::string to_csv(const Table& table, char separator) {
  const bool alone = table.columns().size() == 1;
  std::string out;
  const auto line = [&](const auto& cell) {
    bool first = true;
    for (const Column& column : table.columns()) {
      out += first ? "" : std::string(1, separator);
      out += cell(column);
      first = false;
    }
    out += '\n';
  };
  line([&](const Column& column) { return field_of(column.name, separator, alone); });
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    line([&](const Column& column) { return cell_of(column, row, separator, alone); });
  }
  return out;
}

}  // namespace danling::inline v0::formats
