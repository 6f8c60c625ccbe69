// Node: the content of a YAML file, a JSON file or the command line before it is assigned to fields.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <danling/config/tree.hpp>

namespace danling::inline v0::detail {

/// Maximum nesting of lists and mappings, since nodes are copied and destroyed recursively.
inline constexpr std::size_t max_depth = 100;

/// The source of a text, for messages.
struct Origin {
  std::string name;
  bool file = true;
  /// Returns `file 'a.yaml', line 3`, or only the name for a source without lines.
  std::string at(int line) const;
};

/// A value as written. A scalar remains text until a field determines its type.
struct Node {
  enum class Kind { null, scalar, list, map };
  struct Entry;

  Kind kind = Kind::null;
  std::string text;     // scalar
  bool quoted = false;  // a scalar in quotes, which can only be text
  std::vector<Node> items;
  std::vector<Entry> entries;
  int line = 0;

  static Node plain(std::string text, int line);
  static Node quoted_text(std::string text, int line);
  /// Returns a text for messages, such as `'ten'`, `'10' in quotes` or `a list`.
  std::string describe() const;
};

struct Node::Entry {
  std::string key;
  int line;
  Node value;
};

/// The keys of a map that is being read, with their lines.
using KeyLines = std::unordered_map<std::string, int>;

/// Adds an entry. @throws ConfigError for a repeated key
void add_entry(Node& map, KeyLines& keys, Node::Entry entry, const Origin& origin);

/// Converts a node without a field list: plain scalars become null, bools, integers or numbers if they parse as such.
ConfigTree tree_of(const Node& node);
/// Reads a YAML file, or a JSON file if its name ends in `.json`. @throws ConfigError with file and line
ConfigTree read_config_tree(const std::string& path);

/// @throws ConfigError with origin and line for text that is not YAML, has several documents, nests deeper than
/// `max_depth`, or whose aliases expand beyond the limit
Node read_yaml(std::string_view text, const Origin& origin);
/// @throws ConfigError with origin and line for text that is not JSON or nests deeper than `max_depth`
Node read_json(std::string_view text, const Origin& origin);

}  // namespace danling::inline v0::detail
