// Reads YAML text into nodes by yaml-cpp's events, which have the line of every key and include duplicates.
#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <danling/core/error.hpp>

#include <config/node.hpp>
#include <config/number.hpp>

namespace danling::inline v0::detail {
namespace {

// Limit of values from expanded aliases.
constexpr std::size_t max_nodes = 100000;
constexpr std::size_t max_text = std::size_t{1} << 24;

struct Amount {
  std::size_t nodes = 0;
  std::size_t text = 0;  // bytes
};

void add_amount(const Node& node, Amount& total) {
  ++total.nodes;
  total.text += node.text.size();
  for (const auto& item : node.items) add_amount(item, total);
  for (const auto& entry : node.entries) {
    total.text += entry.key.size();
    add_amount(entry.value, total);
  }
}

// Converts a message to one line, since yaml-cpp may quote the invalid text.
std::string one_line(const std::string& text) {
  const std::string quoted = quote(text);
  return quoted.substr(1, quoted.size() - 2);
}

class YamlBuilder : public YAML::EventHandler {
 public:
  explicit YamlBuilder(const Origin& origin) : origin_(origin) {}

  Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Node node;
    node.line = line(mark);
    add(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check<ConfigError>(anchor < anchored_.size() && anchored_[anchor].second, "config.load",
                       "expected an alias of a complete value (", origin_.at(line(mark)), ")");
    add_amount(anchored_[anchor].first, aliased_);
    check<ConfigError>(aliased_.nodes <= max_nodes && aliased_.text <= max_text, "config.load",
                       "expected aliases for at most ", max_nodes, " values and ", max_text,
                       " bytes of text, got more (", origin_.at(line(mark)), ")");
    add(Node(anchored_[anchor].first), YAML::NullAnchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    // yaml-cpp tags plain scalars "?" and quoted scalars "!"; `!!str` is equivalent to quotes.
    const bool quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    add(quoted ? Node::quoted_text(value, line(mark)) : Node::plain(value, line(mark)), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Node::Kind::list, mark, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Node::Kind::map, mark, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    Node node;
    YAML::anchor_t anchor;
    bool has_key = false;
    std::string key;
    int key_line = 0;
    KeyLines keys;
  };

  static int line(const YAML::Mark& mark) { return mark.line + 1; }

  void open(Node::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    check<ConfigError>(stack_.size() < max_depth, "config.load", "expected at most ", max_depth,
                       " levels of nesting, got more (", origin_.at(line(mark)), ")");
    Node node;
    node.kind = kind;
    node.line = line(mark);
    stack_.push_back({std::move(node), anchor, false, {}, 0, {}});
  }

  void close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    add(std::move(frame.node), frame.anchor);
  }

  void add(Node node, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      if (anchored_.size() <= anchor) {
        anchored_.resize(anchor + 1);
      }
      anchored_[anchor] = {node, true};
    }
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = stack_.back();
    if (frame.node.kind == Node::Kind::list) {
      frame.node.items.push_back(std::move(node));
    } else if (!frame.has_key) {
      check<ConfigError>(node.kind == Node::Kind::scalar, "config.load", "expected a key, got ", node.describe(), " (",
                         origin_.at(node.line), ")");
      frame.has_key = true;
      frame.key = std::move(node.text);
      frame.key_line = node.line;
    } else {
      frame.has_key = false;
      add_entry(frame.node, frame.keys, {std::move(frame.key), frame.key_line, std::move(node)}, origin_);
    }
  }

  const Origin& origin_;
  Node root_;
  std::vector<Frame> stack_;
  std::vector<std::pair<Node, bool>> anchored_;
  Amount aliased_;
};

/// True if the line of this number, from 0, begins with a tab, maybe after spaces.
bool has_tab(std::string_view text, int line) {
  for (; line > 0 && !text.empty(); --line) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  const auto first = text.find_first_not_of(' ');
  return first != std::string_view::npos && text[first] == '\t';
}

}  // namespace

Node read_yaml(std::string_view text, const Origin& origin) {
  std::istringstream stream{std::string(text)};
  YamlBuilder builder(origin);
  try {
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      YamlBuilder rest(origin);
      if (parser.HandleNextDocument(rest)) {
        fail<ConfigError>("config.load", "expected one document, got several (", origin.at(rest.take().line), ")");
      }
    }
    return builder.take();
  } catch (const YAML::Exception& error) {
    fail<ConfigError>("config.load", "expected YAML, got a syntax error: ", one_line(error.msg), " (",
                      origin.at(error.mark.line + 1), ")",
                      has_tab(text, error.mark.line) ? "; YAML indents by spaces, this line by a tab" : "");
  }
}

}  // namespace danling::inline v0::detail
