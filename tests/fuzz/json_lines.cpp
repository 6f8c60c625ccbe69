// JSON lines: records within their lines, and tables with a row for each.
#include <danling/formats/json_lines.hpp>

#include <danling/core/error.hpp>
#include <danling/formats/table.hpp>

#include "formats/table_blocks.hpp"
#include "memory_file.hpp"

namespace danling_fuzz {

// Of gzip a byte becomes a thousand, and each two of them may be a line.
const Allowance allowance{std::size_t{1} << 22, 400000};

void run(std::string_view input) {
  const MemoryFile file(input);
  const danling::formats::JsonLinesFile lines(file.path());
  std::size_t bytes = 0;
  bool whole = true;
  for (std::int64_t i = 0; i < lines.size(); ++i) {
    const std::string_view text = lines.text(i);
    bytes += text.size() + 1;
    require(!text.empty() && text.find('\n') == std::string_view::npos, "one line as a record");
    require(i == 0 || lines.line(i) > lines.line(i - 1), "lines in their order");
    try {
      lines.read(i);
    } catch (const danling::Error&) {
      whole = false;
    }
  }
  require(bytes <= lines.bytes() + 1, "records that do not overlap");
  std::size_t rows = 0;
  std::string refusal;
  try {
    rows = danling::formats::read_json_lines_in(file.path(), {}, {1, input.size() / 4 + 1}).num_rows();
  } catch (const danling::Error& error) {
    refusal = error.what();
  }
  try {
    require(danling::formats::read_json_lines_in(file.path(), {}, {1, ~std::size_t{0}}).num_rows() == rows,
            "as many rows in blocks");
    require(refusal.empty(), "a table in blocks too");
  } catch (const danling::Error& error) {
    require(refusal == error.what(), "the same refusal in blocks");
  }
  const auto table = danling::formats::read_json_lines(file.path(), {.num_threads = 1});
  require(whole, "a table only of lines that read");
  require(table.columns().empty() || table.num_rows() == static_cast<std::size_t>(lines.size()), "a row for each line");
}

}  // namespace danling_fuzz
