// CSV files: columns of equal length, the same in blocks of any size, and the same texts again when they are written
// with quotes around each.
#include <string>

#include <danling/core/error.hpp>
#include <danling/formats/table.hpp>

#include "formats/table_blocks.hpp"
#include "memory_file.hpp"

namespace danling_fuzz {
namespace {

using danling::formats::ColumnType;
using danling::formats::CsvOptions;
using danling::formats::Table;

void require_equal(const Table& a, const Table& b) {
  require(a.columns().size() == b.columns().size() && a.num_rows() == b.num_rows(), "a table of one shape in blocks");
  for (std::size_t c = 0; c < a.columns().size(); ++c) {
    const auto& [name, values, first_text, first_number] = a.columns()[c];
    const auto& other = b.columns()[c];
    require(name == other.name && first_text == other.first_text && first_number == other.first_number &&
                values.index() == other.values.index(),
            "the same columns in blocks");
    for (std::size_t row = 0; row < other.size() && other.type() == ColumnType::text; ++row) {
      require(a.columns()[c].texts()[row] == other.texts()[row], "the same texts in blocks");
    }
    for (std::size_t row = 0; row < other.size() && other.type() == ColumnType::float64; ++row) {
      const double value = other.floats()[row];
      require(a.columns()[c].floats()[row] == value || value != value, "the same numbers in blocks");
    }
  }
  for (std::size_t row = 0; row < a.num_rows(); ++row) {
    require(a.lines().line(row) == b.lines().line(row), "the same lines in blocks");
  }
}

/// The table in a few blocks is `whole`, or is refused in the same words.
void check_blocks(const MemoryFile& file, std::size_t size, const CsvOptions& options, const Table* whole,
                  const std::string& refusal) {
  for (const std::size_t bytes : {size / 8 + 1, size / 3 + 1}) {
    bool read = false;
    try {
      const Table parts = read_csv_in(file.path(), options, {1, bytes});
      read = true;
      require(whole != nullptr, "a refusal in blocks too");
      require_equal(*whole, parts);
    } catch (const danling::Error& error) {
      require(!read && whole == nullptr && refusal == error.what(), "the same refusal in blocks");
    }
  }
}

Table read(std::string_view content, const CsvOptions& options) {
  const MemoryFile file(content);
  std::string refusal;
  try {
    Table whole = read_csv_in(file.path(), options, {1, ~std::size_t{0}});
    check_blocks(file, content.size(), options, &whole, "");
    return whole;
  } catch (const danling::Error& error) {
    refusal = error.what();
  }
  check_blocks(file, content.size(), options, nullptr, refusal);
  throw danling::DataError(refusal);
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

// Of gzip a byte becomes a thousand, and each of them may be a row.
const Allowance allowance{std::size_t{1} << 22, 400000};

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
