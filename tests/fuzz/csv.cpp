// CSV files: columns of equal length, and the same texts again when they are written with quotes around each.
#include <danling/core/error.hpp>
#include <danling/formats/table.hpp>

#include <string>

#include "memory_file.hpp"

namespace danling_fuzz {
namespace {

using danling::formats::ColumnType;
using danling::formats::CsvOptions;
using danling::formats::Table;

Table read(std::string_view content, const CsvOptions& options) {
  const MemoryFile file(content);
  return danling::formats::read_csv(file.path(), options);
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    out += c == '"' ? "\"\"" : std::string(1, c);
  }
  return out + '"';
}

void read_again(std::string_view input, bool header) {
  CsvOptions options;
  options.header = header;
  const Table inferred = read(input, options);
  for (const auto& column : inferred.columns()) {
    options.types[column.name] = ColumnType::text;
  }
  const Table texts = read(input, options);
  require(texts.num_rows() == inferred.num_rows(), "as many rows of texts as of inferred types");
  std::string copy;
  for (std::size_t c = 0; header && c < texts.columns().size(); ++c) {
    copy += (c == 0 ? "" : ",") + in_quotes(texts.columns()[c].name);
  }
  copy += header ? "\n" : "";
  for (std::size_t row = 0; row < texts.num_rows(); ++row) {
    for (std::size_t c = 0; c < texts.columns().size(); ++c) {
      copy += (c == 0 ? "" : ",") + in_quotes(texts.columns()[c].texts()[row]);
    }
    copy += "\r\n";
    require(texts.lines().line(row) > 0, "a line for each row");
  }
  const Table again = read(copy, options);
  require(again.num_rows() == texts.num_rows(), "as many rows after writing and reading");
  for (std::size_t c = 0; c < texts.columns().size(); ++c) {
    require(again.columns()[c].name == texts.columns()[c].name, "the same names after writing and reading");
    for (std::size_t row = 0; row < texts.num_rows(); ++row) {
      require(again.columns()[c].texts()[row] == texts.columns()[c].texts()[row],
              "the same texts after writing and reading");
    }
  }
}

}  // namespace

const Allowance allowance{std::size_t{1} << 22, 4096};

void run(std::string_view input) {
  CsvOptions options;
  options.separator = ';';
  options.quote = '\0';
  options.comment = '#';
  try {
    read(input, options);
  } catch (const danling::Error&) {
    // The same bytes may still be a table of commas.
  }
  try {
    read_again(input, false);
  } catch (const danling::Error&) {
    // And a table with a header.
  }
  read_again(input, true);
}

}  // namespace danling_fuzz
