// What a YAML file, a JSON file or the command line says, before it meets a field list.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace danling::inline v0::detail {

/// Deepest nesting of lists and mappings that is read. Nodes are copied and destroyed by recursion.
inline constexpr std::size_t max_depth = 100;

/// Where text comes from, for messages.
struct Origin {
  std::string name;
  bool file = true;
  /// `file 'a.yaml', line 3`, or the name alone where there are no lines.
  std::string at(int line) const;
};

/// A value as written. Scalars stay text until a field says what they are.
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

/// The keys of a map that is being read, and their lines.
using KeyLines = std::unordered_map<std::string, int>;

/// Adds an entry. @throws ConfigError when the key is there already.
void add_entry(Node& map, KeyLines& keys, Node::Entry entry, const Origin& origin);

/// @throws ConfigError with origin and line for text that is not YAML, holds several documents, nests deeper than
/// `max_depth`, or grows beyond measure by its aliases.
Node read_yaml(std::string_view text, const Origin& origin);
/// @throws ConfigError with origin and line for text that is not JSON, or nests deeper than `max_depth`.
Node read_json(std::string_view text, const Origin& origin);

}  // namespace danling::inline v0::detail
