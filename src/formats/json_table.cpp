// Reads JSON lines files into tables.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/formats/json_lines.hpp>
#include <danling/formats/table.hpp>

#include <formats/json_rows.hpp>
#include <formats/parallel.hpp>
#include <formats/table_blocks.hpp>

namespace danling::inline v0::formats {
namespace {

/// Reads all lines, in blocks on several threads; returns nullopt if a line is invalid or its types do not fit.
std::optional<JsonRows> read_blocks(const JsonLinesFile& file, const JsonTableOptions& options, const Blocks& blocks) {
  const auto size = static_cast<std::size_t>(file.size());
  const std::size_t count =
      std::clamp<std::size_t>(static_cast<std::size_t>(file.bytes()) / blocks.bytes, 1, std::max<std::size_t>(size, 1));
  std::vector<std::optional<JsonRows>> parts(count);
  try {
    parallel_for(count, blocks.threads, [&](std::size_t i) {
      parts[i].emplace(file, options);
      parts[i]->read(static_cast<std::int64_t>(size * i / count), static_cast<std::int64_t>(size * (i + 1) / count));
    });
    for (std::size_t i = 1; i < count; ++i) {
      if (!parts[0]->append(std::move(*parts[i]))) {
        return std::nullopt;
      }
      parts[i].reset();
    }
  } catch (const Error&) {
    return std::nullopt;
  } catch (const JsonFault&) {
    return std::nullopt;
  }
  return std::move(parts[0]);
}

}  // namespace

Table read_json_lines_in(const std::filesystem::path& path, const JsonTableOptions& options, const Blocks& blocks) {
  const JsonLinesFile file(path, {.allow_nan = options.allow_nan});
  std::optional<JsonRows> rows = read_blocks(file, options, blocks);
  if (!rows) {
    // Reads again in order, to report the first error.
    rows.emplace(file, options);
    rows->read_in_order(0, file.size());
  }
  std::vector<std::pair<std::size_t, std::uint64_t>> jumps;
  std::uint64_t line = 0;
  for (std::int64_t record = 0; record < file.size(); ++record) {
    if (const std::uint64_t number = file.line(record); number != ++line || record == 0) {
      line = number;
      jumps.emplace_back(static_cast<std::size_t>(record), line);
    }
  }
  return Table(std::move(*rows).finish(), RowLines(file.path().string(), std::move(jumps)));
}

Table read_json_lines(const std::filesystem::path& path, const JsonTableOptions& options) {
  return read_json_lines_in(path, options, Blocks::of("data.json", options.num_threads));
}

}  // namespace danling::inline v0::formats
