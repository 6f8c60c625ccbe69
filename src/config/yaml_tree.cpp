// Reads YAML text into trees, without a field list for the types of scalars.
#include <danling/config/tree.hpp>

#include <config/node.hpp>
#include <config/number.hpp>

namespace danling::inline v0 {
namespace {

ConfigTree scalar_of(const detail::Node& node) {
  if (node.quoted) {
    return node.text;
  }
  if (detail::is_null_word(node.text)) {
    return {};
  }
  if (const auto truth = detail::parse_bool(node.text)) {
    return *truth;
  }
  if (const auto number = detail::parse_integer(node.text)) {
    return *number;
  }
  const bool word = node.text == "inf" || node.text == "nan" || node.text == "-inf" || node.text == "+inf";
  const auto number = word ? std::nullopt : detail::parse_number(node.text);  // YAML writes .inf and .nan
  return number ? ConfigTree(*number) : ConfigTree(node.text);
}

}  // namespace

ConfigTree detail::tree_of(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return {};
    case Node::Kind::scalar:
      return scalar_of(node);
    case Node::Kind::list: {
      ConfigTree::List out;
      for (const auto& item : node.items) {
        out.push_back(tree_of(item));
      }
      return out;
    }
    case Node::Kind::map:
      break;
  }
  ConfigTree::Map out;
  for (const auto& entry : node.entries) {
    out.set(entry.key, tree_of(entry.value));
  }
  return out;
}

ConfigTree from_yaml(std::string_view yaml, const std::string& origin) {
  return detail::tree_of(detail::read_yaml(yaml, {origin, true}));
}

}  // namespace danling::inline v0
