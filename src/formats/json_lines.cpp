#include <danling/formats/json_lines.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include <danling/core/error.hpp>

#include <formats/json_tree.hpp>
#include <formats/text_file.hpp>

namespace danling::inline v0::formats {
namespace {

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

std::string_view line_from(std::string_view text, std::uint64_t begin) {
  text.remove_prefix(static_cast<std::size_t>(begin));
  const void* const end = text.empty() ? nullptr : std::memchr(text.data(), '\n', text.size());
  return end == nullptr ? text : text.substr(0, static_cast<std::size_t>(static_cast<const char*>(end) - text.data()));
}

}  // namespace

RecordTree parse_json(std::string_view text, std::string_view source, const JsonOptions& options) {
  return json_tree<RecordTree>(text, options.allow_nan, [&] { return source; });
}

JsonLinesFile::JsonLinesFile(std::filesystem::path path, const JsonOptions& options)
    : file_(std::make_unique<TextFile>(std::move(path), "data.json")), options_(options), text_(file_->text()) {
  std::uint64_t begin = 0;
  for (std::uint64_t number = 1; begin < text_.size(); ++number) {
    const std::string_view line = line_from(text_, begin);
    if (!is_blank(line)) {
      lines_.push_back({begin, number});
    }
    begin += line.size() + 1;
  }
  lines_.shrink_to_fit();
  file_->advise(Access::random);
}

JsonLinesFile::~JsonLinesFile() = default;

const std::filesystem::path& JsonLinesFile::path() const { return file_->path(); }

const JsonLinesFile::Line& JsonLinesFile::at(std::int64_t record) const {
  check<DataError>(record >= 0 && record < size(), "data.json", "expected a record in [0, ", size(), "), got ", record,
                   " (file ", quote(path().string()), ")");
  return lines_[static_cast<std::size_t>(record)];
}

std::string_view JsonLinesFile::text(std::int64_t record) const {
  const std::string_view line = line_from(text_, at(record).begin);
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

RecordTree JsonLinesFile::read(std::int64_t record) const { return json_tree<RecordTree>(*this, record); }

void JsonLinesFile::check_size() const { file_->check_size(); }

}  // namespace danling::inline v0::formats
