// Converts configs to trees and back, and compares trees.
#include <danling/config/tree.hpp>

#include <algorithm>
#include <map>

#include <danling/core/error.hpp>

#include <config/assign.hpp>
#include <config/field_spec.hpp>

namespace danling::inline v0 {
namespace detail {
namespace {

enum class Scope { all, semantic };

ConfigTree section_tree(ConstSectionRef section, Scope scope);

/// Returns an entry of a list or map of sections; Scope::all omits values that equal the defaults.
ConfigTree entry_tree(SectionRef entry, SectionRef fresh, Scope scope) {
  ConfigTree tree = section_tree(entry, scope);
  return scope == Scope::all ? changed_entries(tree, section_tree(fresh, scope)) : tree;
}

ConfigTree meaning(const FieldSpec& spec, ConfigTree value) {
  if (value.is_string()) {
    for (const auto& [name, meant] : spec.synonyms) {
      if (value.string() == name) {
        return ConfigTree(meant);
      }
    }
    if (spec.case_insensitive) {
      return ConfigTree(to_lower(value.string()));
    }
  }
  return value;
}

ConfigTree section_tree(ConstSectionRef section, Scope scope) {
  const bool semantic = scope == Scope::semantic;
  ConfigTree::Map out;
  const auto set = [&](const std::string& name, ConfigTree value) {
    const bool nothing = value.is_null() || (value.is_map() && value.map().empty());
    if (!semantic || !nothing) {
      out.set(name, std::move(value));
    }
  };
  const Fields fields(section);
  for (const auto& spec : fields.specs()) {
    if (semantic && (!spec->semantic || spec->reserved() != nullptr)) {
      continue;
    }
    if (spec->is_section()) {
      set(spec->name, section_tree(std::get<SectionRef>(spec->target), scope));
    } else if (spec->is_list()) {
      const auto& list = std::get<SectionList>(spec->target);
      const auto fresh = list.make();
      ConfigTree::List items;
      for (std::size_t i = 0; i < list.size(list.target); ++i) {
        items.push_back(entry_tree(list.at(list.target, i), fresh.section, scope));
      }
      set(spec->name, items.empty() ? ConfigTree() : ConfigTree(std::move(items)));
    } else if (spec->is_map()) {
      const auto& map = std::get<SectionMap>(spec->target);
      const auto fresh = map.make();
      for (const auto& name : map.names(map.target)) {
        set(name, entry_tree(map.at(map.target, name), fresh.section, scope));
      }
    } else {
      const ConfigTree value = value_of(*spec);
      set(spec->name, semantic ? meaning(*spec, value) : value);
    }
  }
  return ConfigTree(std::move(out));
}

Node node_of(const ConfigTree& tree) {
  Node node;
  if (tree.is_list()) {
    node.kind = Node::Kind::list;
    for (const auto& item : tree.list()) {
      node.items.push_back(node_of(item));
    }
  } else if (tree.is_map()) {
    node.kind = Node::Kind::map;
    for (const auto& entry : tree.map()) {
      node.entries.push_back({entry.key.string(), 0, node_of(entry.value)});
    }
  } else if (tree.is_string()) {
    node = Node::quoted_text(tree.string(), 0);
  } else if (!tree.is_null()) {
    node = Node::plain(tree.is_bool()      ? to_text(tree.boolean())
                       : tree.is_integer() ? to_text(tree.integer())
                                           : to_text(tree.number()),
                       0);
  }
  return node;
}

/// Copies `from` to an unset option of the same type.
template <class T>
void fill(const T& target, const Target& from) {
  if constexpr (std::is_same_v<T, SectionList>) {
    if (target.size(target.target) == 0) {
      target.copy(target.target, std::get<SectionList>(from).target);
    }
  } else if constexpr (std::is_pointer_v<T>) {
    if constexpr (requires { target->reset(); }) {
      if (!*target) {
        *target = *std::get<T>(from);
      }
    }
  }
}

void flatten(const ConfigTree& tree, const std::string& prefix, std::map<std::string, std::string>& out) {
  if (tree.is_map()) {
    for (const auto& entry : tree.map()) {
      const std::string& key = entry.key.string();
      flatten(entry.value, prefix.empty() ? key : concat(prefix, ".", key), out);
    }
  } else if (!tree.is_null()) {
    out[prefix] = inline_yaml(tree);
  }
}

}  // namespace

bool same(const ConfigTree& a, const ConfigTree& b) { return inline_yaml(a) == inline_yaml(b); }

}  // namespace detail

ConfigTree to_tree(ConstSectionRef section) { return detail::section_tree(section, detail::Scope::all); }

ConfigTree semantic_tree(ConstSectionRef section) { return detail::section_tree(section, detail::Scope::semantic); }

std::vector<std::string> assigned_keys(ConstSectionRef section) {
  std::vector<std::string> out;
  const ConfigTree tree = to_tree(section);
  for (const auto& entry : tree.map()) {
    if (!entry.value.is_null()) {
      out.push_back(entry.key.string());
    }
  }
  return out;
}

void inherit(SectionRef section, ConstSectionRef from) {
  const Fields to(section);
  const Fields given(from);
  for (const auto& spec : to.specs()) {
    for (const auto& other : given.specs()) {
      if (other->name == spec->name && other->target.index() == spec->target.index()) {
        std::visit([&](const auto& target) { detail::fill(target, other->target); }, spec->target);
        if (spec->as_text) spec->as_text->store(spec->as_text->text);
      }
    }
  }
}

void from_tree(SectionRef section, const ConfigTree& tree, const std::string& origin) {
  detail::Assignment(section, {origin, false}).assign_all(detail::node_of(tree));
}

ConfigTree changed_entries(const ConfigTree& tree, const ConfigTree& defaults) {
  ConfigTree::Map out;
  for (const auto& entry : tree.map()) {
    const ConfigTree* standard = defaults.is_map() ? defaults.find(entry.key) : nullptr;
    if (standard != nullptr && entry.value.is_map() && standard->is_map()) {
      ConfigTree below = changed_entries(entry.value, *standard);
      if (!below.map().empty()) {
        out.set(entry.key, std::move(below));
      }
    } else if (standard == nullptr || !detail::same(entry.value, *standard)) {
      out.set(entry.key, entry.value);
    }
  }
  return ConfigTree(std::move(out));
}

std::vector<Difference> find_differences(const ConfigTree& first, const ConfigTree& second) {
  static const std::string unset = "not set";
  std::map<std::string, std::string> a;
  std::map<std::string, std::string> b;
  detail::flatten(first, "", a);
  detail::flatten(second, "", b);
  std::vector<Difference> out;
  for (const auto& [key, value] : a) {
    const auto found = b.find(key);
    if (found == b.end() || found->second != value) {
      out.push_back({key, value, found == b.end() ? unset : found->second});
    }
  }
  for (const auto& [key, value] : b) {
    if (!a.contains(key)) {
      out.push_back({key, unset, value});
    }
  }
  std::sort(out.begin(), out.end(), [](const auto& x, const auto& y) { return x.key < y.key; });
  return out;
}

std::string describe(const std::vector<Difference>& differences, std::string_view first_name,
                     std::string_view second_name) {
  std::string out;
  for (const auto& difference : differences) {
    out += concat("  ", difference.key, ": ", difference.first, " ", first_name, ", ", difference.second, " ",
                  second_name, "\n");
  }
  return out;
}

}  // namespace danling::inline v0
