#include <danling/telemetry/csv_sink.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/formats/file.hpp>

#include <telemetry/append_file.hpp>

namespace danling::inline v0 {
namespace {

constexpr std::array<std::string_view, 5> place_columns = {"split", "mode", "epoch", "global_step", "iteration"};

std::string number_text(double value) {
  if (!std::isfinite(value)) {
    return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  }
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string out = "\"";
  for (const char c : text) {
    out.append(c == '"' ? 2 : 1, c);
  }
  return out + '"';
}

std::string joined(const std::vector<std::string>& cells) {
  std::string out;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    out += i == 0 ? "" : ",";
    out += field(cells[i]);
  }
  return out + '\n';
}

std::string text_of(const std::optional<std::int64_t>& number) { return number ? std::to_string(*number) : ""; }

}  // namespace

CsvSink::CsvSink(std::filesystem::path file) : path_(std::move(file)) {}
CsvSink::~CsvSink() = default;

std::int64_t CsvSink::begin(const RunInfo&) {
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  file_ = std::make_unique<detail::AppendFile>(path_, detail::AppendFile::Content::emptied);
  columns_.assign(place_columns.begin(), place_columns.end());
  return 0;
}

void CsvSink::scalars(const ScalarRecord& record) {
  std::vector<std::pair<std::string, double>> numbers = record.values.flatten(".");
  for (auto& [name, number] : record.telemetry.flatten(".")) {
    numbers.emplace_back("telemetry." + name, number);
  }
  if (record.time > 0) {
    numbers.emplace_back("telemetry.timestamp", record.time);
  }
  std::vector<std::string> names;
  for (const auto& [name, number] : numbers) {
    if (std::find(columns_.begin(), columns_.end(), name) == columns_.end()) {
      names.push_back(name);
    }
  }
  if (!names.empty()) {
    add_columns(names);
  }
  std::vector<std::string> cells(columns_.size());
  cells[0] = record.split;
  cells[1] = record.mode;
  cells[2] = text_of(record.epoch);
  cells[3] = std::to_string(record.global_step);
  cells[4] = text_of(record.iteration);
  for (const auto& [name, number] : numbers) {
    const auto column = std::find(columns_.begin(), columns_.end(), name) - columns_.begin();
    cells[static_cast<std::size_t>(column)] = number_text(number);
  }
  file_->restore();
  file_->append(joined(cells));
}

// Rewrites the file with further columns. A row ends at a line feed outside quotes.
void CsvSink::add_columns(const std::vector<std::string>& names) {
  file_->restore();
  std::vector<std::string> columns = columns_;
  columns.insert(columns.end(), names.begin(), names.end());
  const auto path = std::filesystem::path(path_).concat(".new");
  auto file = std::make_unique<detail::AppendFile>(path, detail::AppendFile::Content::emptied);
  file->append(joined(columns));
  const std::string missing(names.size(), ',');
  const formats::InputFile rows(path_, formats::FileErrors::of<Error>("sink.read"));
  const std::uint64_t end = std::min(rows.size(), file_->size());  // behind it is a row that a full disk has cut
  constexpr std::uint64_t piece = 1U << 20U;
  bool header = true, quoted = false;
  for (std::uint64_t begin = 0; begin < end; begin += piece) {
    std::string block;
    for (const char c : rows.text(begin, std::min(piece, end - begin))) {
      quoted ^= c == '"';
      const bool ends_row = c == '\n' && !quoted;
      if (!header) {
        block += ends_row ? missing : "";
        block += c;
      }
      header = header && !ends_row;
    }
    file->append(block);
  }
  file->rename(path_);
  file_ = std::move(file);
  columns_ = std::move(columns);
}

}  // namespace danling::inline v0
