#include <danling/formats/json_lines.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include <danling/core/error.hpp>

namespace danling::inline v0::formats {
namespace {

// Trees are taken down by recursion.
constexpr std::size_t kMaxJsonDepth = 256;

/// Takes nlohmann's events.
class JsonTree : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonTree(std::string_view source) : source_(source) {}

  RecordTree take() { return std::move(root_); }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(static_cast<std::int64_t>(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse("expected integers that int64 holds, got ", static_cast<std::uint64_t>(value));
    }
    return add(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) {
      refuse("expected integers that int64 holds, got ", text.substr(0, 60));
    }
    return add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(RecordTree(RecordTree::Map())); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(RecordTree(RecordTree::List())); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (stack_.back().tree.map().contains(name)) {
      refuse("expected each key once, got ", quote(name.substr(0, 60)), " twice");
    }
    stack_.back().key = std::move(name);
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception& error) override {
    // What nlohmann says starts with its own error code and position, and may quote all there is of a line.
    std::string text = error.what();
    const auto reason = text.find("syntax error");
    text = text.substr(reason != std::string::npos ? reason : text.find("] ") + 2);
    if (text.size() > 200) {
      text = text.substr(0, 200) + "...";
    }
    for (char& c : text) {
      c = static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e ? '?' : c;
    }
    fail<DataError>("data.json", "expected JSON, got a ", text, " (", source_, ", column ", at, ")");
  }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail<DataError>("data.json", parts..., " (", source_, ")");
  }

 private:
  struct Frame {
    RecordTree tree;
    std::string key;
  };

  bool open(RecordTree tree) {
    if (stack_.size() == kMaxJsonDepth) {
      refuse("expected at most ", kMaxJsonDepth, " levels of nesting, got more");
    }
    stack_.push_back({std::move(tree), {}});
    return true;
  }
  bool close() {
    RecordTree tree = std::move(stack_.back().tree);
    stack_.pop_back();
    return add(std::move(tree));
  }
  bool add(RecordTree value) {
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (Frame& frame = stack_.back(); frame.tree.is_list()) {
      frame.tree.list().push_back(std::move(value));
    } else {
      frame.tree.map().set(std::move(frame.key), std::move(value));
    }
    return true;
  }

  std::string_view source_;
  RecordTree root_;
  std::vector<Frame> stack_;
};

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

std::string_view line_from(std::string_view text, std::uint64_t begin) {
  text.remove_prefix(static_cast<std::size_t>(begin));
  const void* const end = text.empty() ? nullptr : std::memchr(text.data(), '\n', text.size());
  return end == nullptr ? text : text.substr(0, static_cast<std::size_t>(static_cast<const char*>(end) - text.data()));
}

}  // namespace

RecordTree parse_json(std::string_view text, std::string_view source) {
  JsonTree tree(source);
  nlohmann::json::sax_parse(text.begin(), text.end(), &tree);
  return tree.take();
}

JsonLinesFile::JsonLinesFile(std::filesystem::path path) : file_(std::move(path), Access::sequential, "data.json") {
  const std::string_view text = file_.text();
  std::uint64_t begin = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
  for (std::uint64_t number = 1; begin < text.size(); ++number) {
    const std::string_view line = line_from(text, begin);
    if (!is_blank(line)) {
      lines_.push_back({begin, number});
    }
    begin += line.size() + 1;
  }
  lines_.shrink_to_fit();
  file_.advise(Access::random);
}

const JsonLinesFile::Line& JsonLinesFile::at(std::int64_t record) const {
  check<DataError>(record >= 0 && record < size(), "data.json", "expected a record in [0, ", size(), "), got ", record,
                   " (file ", quote(path().string()), ")");
  return lines_[static_cast<std::size_t>(record)];
}

std::string_view JsonLinesFile::text(std::int64_t record) const {
  const std::string_view line = line_from(file_.text(), at(record).begin);
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

RecordTree JsonLinesFile::read(std::int64_t record) const {
  const std::string_view line = text(record);
  return parse_json(line, concat("file ", quote(path().string()), ", line ", this->line(record)));
}

}  // namespace danling::inline v0::formats
