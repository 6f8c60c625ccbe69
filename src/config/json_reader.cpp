// Reads JSON text into nodes.
#include <cstddef>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>

#include <config/node.hpp>

namespace danling::inline v0::detail {
namespace {

/// Iterates over text and counts lines, since nlohmann's events have no position.
class LineCounter {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineCounter(const char* position, int* line) : position_(position), line_(line) {}
  reference operator*() const { return *position_; }
  LineCounter& operator++() {
    *line_ += *position_ == '\n' ? 1 : 0;
    ++position_;
    return *this;
  }
  LineCounter operator++(int) {
    LineCounter before = *this;
    ++*this;
    return before;
  }
  bool operator==(const LineCounter& other) const { return position_ == other.position_; }

 private:
  const char* position_;
  int* line_;
};

class JsonBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonBuilder(const Origin& origin, const int& line) : origin_(origin), line_(line) {}

  Node take() { return std::move(root_); }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(Node::plain(value ? "true" : "false", 0)); }
  bool number_integer(number_integer_t value) override { return add(Node::plain(std::to_string(value), 0)); }
  bool number_unsigned(number_unsigned_t value) override { return add(Node::plain(std::to_string(value), 0)); }
  bool number_float(number_float_t, const string_t& text) override { return add(Node::plain(text, 0)); }
  bool string(string_t& value) override { return add(Node::quoted_text(value, 0)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Node::Kind::map); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Node::Kind::list); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    stack_.back().key = name;
    stack_.back().key_line = line_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    // nlohmann's message begins with an error code and position, and may quote a long number.
    std::string text = error.what();
    const auto reason = text.find("syntax error");
    text = text.substr(reason != std::string::npos ? reason : text.find("] ") + 2);
    if (text.size() > 200) {
      text = text.substr(0, 200) + "...";
    }
    fail<ConfigError>("config.load", "expected JSON, got a ", text, " (", origin_.at(line_), ")");
  }

 private:
  struct Frame {
    Node node;
    std::string key;
    int key_line = 0;
    KeyLines keys;
  };

  bool open(Node::Kind kind) {
    check<ConfigError>(stack_.size() < max_depth, "config.load", "expected at most ", max_depth,
                       " levels of nesting, got more (", origin_.at(line_), ")");
    Node node;
    node.kind = kind;
    stack_.push_back({std::move(node), {}, 0, {}});
    return true;
  }

  bool close() {
    Node node = std::move(stack_.back().node);
    stack_.pop_back();
    return add(std::move(node));
  }

  bool add(Node node) {
    // The reader may already be on a later line, so use the line of the key.
    node.line = stack_.empty() || stack_.back().key_line == 0 ? line_ : stack_.back().key_line;
    if (stack_.empty()) {
      root_ = std::move(node);
    } else if (Frame& frame = stack_.back(); frame.node.kind == Node::Kind::list) {
      frame.node.items.push_back(std::move(node));
    } else {
      add_entry(frame.node, frame.keys, {frame.key, frame.key_line, std::move(node)}, origin_);
    }
    return true;
  }

  const Origin& origin_;
  const int& line_;
  Node root_;
  std::vector<Frame> stack_;
};

}  // namespace

Node read_json(std::string_view text, const Origin& origin) {
  int line = 1;
  JsonBuilder builder(origin, line);
  const char* end = text.data() + text.size();
  nlohmann::json::sax_parse(LineCounter(text.data(), &line), LineCounter(end, &line), &builder);
  return builder.take();
}

}  // namespace danling::inline v0::detail
