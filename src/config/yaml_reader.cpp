// YAML text to nodes. Works on yaml-cpp's events, which carry the line of every key and keep duplicates.
#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <danling/core/error.hpp>
#include <sstream>
#include <utility>

#include "config/node.hpp"
#include "config/number.hpp"

namespace danling::inline v0::detail {
namespace {

constexpr std::size_t max_nodes = 100000;  // what aliases of aliases may grow to

std::size_t count(const Node& node) {
  std::size_t total = 1;
  for (const auto& item : node.items) total += count(item);
  for (const auto& entry : node.entries) total += count(entry.value);
  return total;
}

class Builder : public YAML::EventHandler {
 public:
  explicit Builder(const Origin& origin) : origin_(origin) {}

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
    Node node = anchored_[anchor].first;
    nodes_ += count(node);
    check<ConfigError>(nodes_ <= max_nodes, "config.load", "expected at most ", max_nodes, " values (",
                       origin_.at(line(mark)), ")");
    add(std::move(node), YAML::NullAnchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    // yaml-cpp tags plain scalars "?" and quoted ones "!"; `!!str` says the same as quotes.
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
  };

  static int line(const YAML::Mark& mark) { return mark.line + 1; }

  void open(Node::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    Node node;
    node.kind = kind;
    node.line = line(mark);
    stack_.push_back({std::move(node), anchor, false, {}, 0});
  }

  void close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    add(std::move(frame.node), frame.anchor);
  }

  void add(Node node, YAML::anchor_t anchor) {
    ++nodes_;
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
      add_entry(frame.node, {std::move(frame.key), frame.key_line, std::move(node)}, origin_);
    }
  }

  const Origin& origin_;
  Node root_;
  std::vector<Frame> stack_;
  std::vector<std::pair<Node, bool>> anchored_;
  std::size_t nodes_ = 0;
};

}  // namespace

Node read_yaml(std::string_view text, const Origin& origin) {
  std::istringstream stream{std::string(text)};
  Builder builder(origin);
  try {
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      Builder rest(origin);
      if (parser.HandleNextDocument(rest)) {
        fail<ConfigError>("config.load", "expected one document, got several (", origin.at(rest.take().line), ")");
      }
    }
    return builder.take();
  } catch (const YAML::Exception& error) {
    fail<ConfigError>("config.load", "expected YAML, got a syntax error: ", error.msg, " (",
                      origin.at(error.mark.line + 1), ")");
  }
}

}  // namespace danling::inline v0::detail
