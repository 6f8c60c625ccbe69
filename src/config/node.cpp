// Node: the content of a config source before it is assigned to fields.
#include <config/node.hpp>

#include <danling/core/error.hpp>

#include <config/number.hpp>

namespace danling::inline v0::detail {

std::string Origin::at(int line) const {
  if (!file) {
    return name;
  }
  return line > 0 ? concat("file ", quote(name), ", line ", line) : concat("file ", quote(name));
}

Node Node::plain(std::string text, int line) {
  Node node;
  node.kind = is_null_word(text) ? Kind::null : Kind::scalar;
  node.text = std::move(text);
  node.line = line;
  return node;
}

Node Node::quoted_text(std::string text, int line) {
  Node node;
  node.kind = Kind::scalar;
  node.text = std::move(text);
  node.quoted = true;
  node.line = line;
  return node;
}

std::string Node::describe() const {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::scalar:
      return quote(text) + (quoted ? " in quotes" : "");
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a mapping";
  }
  return {};
}

void add_entry(Node& map, KeyLines& keys, Node::Entry entry, const Origin& origin) {
  const auto [found, added] = keys.emplace(entry.key, entry.line);
  check<ConfigError>(added, "config.parse", "expected each key once, got ", quote(entry.key), " twice (",
                     origin.at(entry.line), "; first in line ", found->second, ")");
  map.entries.push_back(std::move(entry));
}

}  // namespace danling::inline v0::detail
