// Content of a YAML file, a JSON file or the command line, before its fields are known.
#pragma once

#include <cstddef>
#include <danling/config/tree.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace danling::inline v0::detail {

/// Maximum nesting of lists and mappings. Nodes are copied and destroyed by recursion.
inline constexpr std::size_t max_depth = 100;

/// Source of a text, for messages.
struct Origin {
  std::string name;
  bool file = true;
  /// `file 'a.yaml', line 3`, or only the name without lines.
  std::string at(int line) const;
};

/// A value as written. Scalars stay text until a field determines their type.
struct Node {
  enum class Kind { null, scalar, list, map };
  struct Entry;

  Kind kind = Kind::null;
  std::string text;     // scalar
  bool quoted = false;  // a scalar that can only be text
  std::vector<Node> items;
  std::vector<Entry> entries;
  int line = 0;

  static Node plain(std::string text, int line);
  static Node quoted_text(std::string text, int line);
  /// For messages: `'ten'`, `'10' in quotes`, `a list`.
  std::string describe() const;
};

struct Node::Entry {
  std::string key;
  int line;
  Node value;
};

/// Keys of a map while it is read, with their lines.
using KeyLines = std::unordered_map<std::string, int>;

/// Adds an entry. @throws ConfigError for a repeated key.
void add_entry(Node& map, KeyLines& keys, Node::Entry entry, const Origin& origin);

/// Without a field list: plain scalars become null, bools, integers and numbers where they parse as such.
ConfigTree tree_of(const Node& node);
/// The tree of a YAML file, or of a JSON file when its name ends in `.json`. @throws ConfigError with file and line
ConfigTree read_config_tree(const std::string& path);

/// @throws ConfigError with origin and line for text that is not YAML, holds several documents, nests deeper than
/// `max_depth`, or whose aliases expand beyond the limit.
Node read_yaml(std::string_view text, const Origin& origin);
/// @throws ConfigError with origin and line for text that is not JSON, or nests deeper than `max_depth`.
Node read_json(std::string_view text, const Origin& origin);

}  // namespace danling::inline v0::detail
