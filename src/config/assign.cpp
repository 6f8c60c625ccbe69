// Assigns nodes to fields, with the checks that report a position in the source.
#include <config/assign.hpp>

#include <algorithm>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>

#include <config/number.hpp>

namespace danling::inline v0::detail {
namespace {

// Each function reads a whole node into a target, or returns false and leaves the target unchanged.

bool read(const Node& node, std::string& target) {
  if (node.kind != Node::Kind::scalar) return false;
  target = node.text;
  return true;
}

template <class T>
bool take(const std::optional<T>& value, T& target) {
  if (value) {
    target = *value;
  }
  return value.has_value();
}

template <class T>
  requires std::is_arithmetic_v<T>
bool read(const Node& node, T& target) {
  if (node.kind != Node::Kind::scalar || node.quoted) return false;
  if constexpr (std::is_same_v<T, bool>) {
    return take(parse_bool(node.text), target);
  } else if constexpr (std::is_same_v<T, double>) {
    return take(parse_number(node.text), target);
  } else if constexpr (std::is_same_v<T, float>) {
    return take(parse_float(node.text), target);
  } else {
    const auto value = parse_integer(node.text);
    if (!value || !std::in_range<T>(*value)) return false;
    target = static_cast<T>(*value);
    return true;
  }
}

template <class T>
bool read(const Node& node, std::vector<T>& target) {
  std::vector<T> values;
  if (node.kind == Node::Kind::list) {
    for (const auto& item : node.items) {
      T value{};
      if (!read(item, value)) return false;
      values.push_back(std::move(value));
    }
  } else {
    T value{};
    if (!read(node, value)) return false;
    values.push_back(std::move(value));
  }
  target = std::move(values);
  return true;
}

bool read(const Node& node, std::pair<double, double>& target) {
  return node.items.size() == 2 && read(node.items[0], target.first) && read(node.items[1], target.second);
}

/// Adds the keys of `from` to `to`, recursively.
void merge(ConfigTree& to, const ConfigTree& from) {
  for (const auto& entry : from.map()) {
    ConfigTree& place = to[entry.key];
    place.is_map() && entry.value.is_map() ? merge(place, entry.value) : void(place = entry.value);
  }
}

bool read(const Node& node, ConfigTree& target) {
  if (node.kind == Node::Kind::map) {
    const ConfigTree own = tree_of(node);
    target.is_map() ? merge(target, own) : void(target = own);
    return true;
  }
  if (node.kind == Node::Kind::list) return false;
  target = node.kind == Node::Kind::null ? ConfigTree() : ConfigTree(node.text);
  return true;
}

template <class T>
bool read(const Node& node, std::optional<T>& target) {
  if (node.kind == Node::Kind::null) {
    target.reset();
    return true;
  }
  T value{};
  if (!read(node, value)) return false;
  target = std::move(value);
  return true;
}

/// Returns true if `node`, read as the type of `value`, equals `value`, which is not a map.
bool equals(const Node& node, const ConfigTree& value) {
  const auto equals = [&]<class T>(const T& expected) {
    T got{};
    return read(node, got) && got == expected;
  };
  if (value.is_bool()) return equals(value.boolean());
  if (value.is_integer()) return equals(value.integer());
  if (value.is_double()) return equals(value.number());
  if (value.is_string()) return equals(value.string());
  return value.is_list() ? node.kind == Node::Kind::list && node.items.empty() : node.kind == Node::Kind::null;
}

/// Returns the text in the spelling of the choice that it matches except for case. A choice `none` is then text, not
/// null.
Node normalize_spelling(const FieldSpec& spec, Node value) {
  for (Node& item : value.items) {
    item = normalize_spelling(spec, std::move(item));
  }
  const auto take = [&](const std::string& name) {
    if (!value.text.empty() && to_lower(value.text) == to_lower(name)) {
      value.kind = Node::Kind::scalar;
      value.text = name;
    }
  };
  std::for_each(spec.choices.begin(), spec.choices.end(), take);
  for (const auto* names : {&spec.synonyms, &spec.refused}) {
    for (const auto& [name, meaning] : *names) {
      take(name);
    }
  }
  return value;
}

bool read_into(const FieldSpec& spec, const Node& node) {
  return std::visit(
      [&](const auto& target) -> bool {
        if constexpr (requires { read(node, *target); }) {
          return read(node, *target);
        } else {
          return false;
        }
      },
      spec.target);
}

/// Describes a wrong value for a message: the first invalid item of a list, or the value.
std::string describe_wrong(const FieldSpec& spec, const Node& node) {
  return std::visit(
      [&](const auto& target) -> std::string {
        using T = std::decay_t<decltype(target)>;
        if constexpr (std::is_pointer_v<T> && !std::is_same_v<T, Section*>) {
          using Value = typename Unwrapped<std::remove_pointer_t<T>>::type;
          const auto first_wrong = [&]<class Item>(Item probe) -> std::string {
            for (const auto& item : node.items) {
              if (!read(item, probe)) return concat(item.describe(), " in the list");
            }
            return {};
          };
          if constexpr (std::is_same_v<Value, std::pair<double, double>>) {
            const std::string wrong = first_wrong(0.0);
            if (!wrong.empty() || node.kind != Node::Kind::list) return wrong.empty() ? node.describe() : wrong;
            return concat("a list of ", node.items.size());
          } else if constexpr (requires(Value value) { value.resize(1); } && !std::is_same_v<Value, std::string>) {
            std::string wrong = first_wrong(typename Value::value_type{});
            if (!wrong.empty()) return wrong;
          }
        }
        return node.describe();
      },
      spec.target);
}

/// Returns an example for a message: a mapping with the first option that accepts the value, numbers before texts.
std::string example_of(const SectionMap& map, const Node& value) {
  const OwnedSection made = map.make();
  const Fields fields(made.section);
  const bool is_number = value.kind == Node::Kind::scalar && !value.quoted && parse_number(value.text);
  for (const auto& spec : fields.specs()) {
    const bool is_text = std::holds_alternative<std::string*>(spec->target) ||
                         std::holds_alternative<std::optional<std::string>*>(spec->target);
    if (!value.text.empty() && is_text != is_number && read_into(*spec, value)) {
      return concat(", such as {", spec->name, ": ", value.text, "}");
    }
  }
  return {};
}

}  // namespace

void Assignment::assign_all(const Node& root) {
  if (root.kind == Node::Kind::null) {
    return;
  }
  check<ConfigError>(root.kind == Node::Kind::map, "config.parse", "expected a mapping of keys to values, got ",
                     root.describe(), " (", origin_.at(root.line), ")");
  assign_entries({root_, ""}, root);
}

void Assignment::assign_at(const std::string& path, const Node& value) {
  assign_key({root_, ""}, path, value, value.line);
}

void Assignment::assign_entries(const Place& place, const Node& map) {
  for (const auto& entry : map.entries) {
    assign_key(place, entry.key, entry.value, entry.line);
  }
}

void Assignment::assign_key(const Place& place, std::string_view key, const Node& value, int line) {
  const auto dot = key.find('.');
  const std::string head(key.substr(0, dot));
  const std::string_view rest = dot == std::string_view::npos ? std::string_view() : key.substr(dot + 1);
  const bool ends = dot == std::string_view::npos;
  const Fields fields(place.section);

  for (const auto& spec : fields.specs()) {
    if (spec->is_map() || !spec->answers_to(head)) {
      continue;
    }
    if (ends) {
      assign_field(*spec, place, value, line);
      return;
    }
    const std::string path = place.path + spec->name;
    if (spec->is_section()) {
      assign_key({std::get<SectionRef>(spec->target), path + "."}, rest, value, line);
      return;
    }
    if (const ReservedKey* reserved = spec->reserved()) {
      assign_reserved(*reserved, reserved->value, place, path, rest, value, line);
      return;
    }
    if (spec->free_tree() != nullptr) {
      assign_free(*spec, path, rest, value, line);
      return;
    }
    unknown(place, place.path + std::string(key), line);
  }

  for (const auto& spec : fields.specs()) {
    if (spec->is_map() && !head.empty() && (!ends || value.kind == Node::Kind::map)) {
      const auto& map = std::get<SectionMap>(spec->target);
      const Place below{map.at(map.target, head), place.path + head + "."};
      if (ends) {
        assign_entries(below, value);
      } else {
        assign_key(below, rest, value, line);
      }
      return;
    }
    if (spec->is_map() && !head.empty() && fields.specs().size() == 1) {  // every key of this section is a name
      fail<ConfigError>("config.parse", "expected a mapping for ", quote(place.path + head),
                        example_of(std::get<SectionMap>(spec->target), value), ", got ", value.describe(), " (",
                        origin_.at(line), ")");
    }
  }
  unknown(place, place.path + std::string(key), line);
}

void Assignment::assign_field(const FieldSpec& spec, const Place& place, const Node& value, int line) {
  const std::string path = place.path + spec.name;
  if (const ReservedKey* reserved = spec.reserved()) {
    assign_reserved(*reserved, reserved->value, place, path, "", value, line);
    return;
  }
  const auto wrong_kind = [&] {
    fail<ConfigError>("config.parse", "expected ", expected_kind(spec), " for ", quote(path), ", got ",
                      describe_wrong(spec, value), " (", origin_.at(line), ")");
  };

  if (spec.is_section()) {
    if (value.kind == Node::Kind::null) {
      return;  // a section whose keys are all commented out
    }
    if (value.kind != Node::Kind::map) wrong_kind();
    assign_entries({std::get<SectionRef>(spec.target), path + "."}, value);
    return;
  }
  refuse_twice(path, line);
  if (spec.is_list()) {
    assign_list(spec, path, value, line);
    return;
  }

  Node own = spec.choices.empty() ? value : normalize_spelling(spec, value);
  if (spec.case_insensitive) {
    own.text = to_lower(own.text);
  }
  if (!read_into(spec, own)) wrong_kind();
  const std::string objected = find_violation(spec, path, value_of(spec));
  if (!objected.empty()) {
    fail<ConfigError>("config.parse", objected, " (", origin_.at(line), ")");
  }
  if (spec.as_text && !spec.as_text->store(spec.as_text->text)) {
    fail<ConfigError>("config.parse", "expected ", spec.as_text->expected, " for ", quote(path), ", got ",
                      quote(own.text), " (", origin_.at(line), ")");
  }
}

void Assignment::assign_reserved(const ReservedKey& key, const ConfigTree& standard, const Place& place,
                                 const std::string& path, std::string_view rest, const Node& value, int line) {
  const auto refuse = [&](const std::string& got) {
    fail<ConfigError>("config.parse", "expected ", quote(path), " to keep its default ", inline_yaml(standard),
                      ", got ", got, " (", origin_.at(line), "); not available in this release: ", key.feature);
  };
  if (!rest.empty()) {
    if (!standard.is_map()) refuse(concat("key ", quote(rest)));
    const auto dot = rest.find('.');
    const std::string_view head = rest.substr(0, dot);
    const ConfigTree* below = standard.find(head);
    if (below == nullptr) unknown(place, concat(path, ".", rest), line);
    assign_reserved(key, *below, place, concat(path, ".", head), dot == rest.npos ? "" : rest.substr(dot + 1), value,
                    line);
  } else if (!standard.is_map()) {
    refuse_twice(path, line);
    if (!equals(value, standard)) refuse(value.describe());
  } else if (value.kind != Node::Kind::null) {
    check<ConfigError>(value.kind == Node::Kind::map, "config.parse", "expected a mapping for ", quote(path), ", got ",
                       value.describe(), " (", origin_.at(line), ")");
    for (const auto& entry : value.entries) {
      assign_reserved(key, standard, place, path, entry.key, entry.value, entry.line);
    }
  }
}

void Assignment::assign_free(const FieldSpec& spec, const std::string& path, std::string_view rest, const Node& value,
                             int line) {
  refuse_twice(concat(path, ".", rest), line);
  ConfigTree* at = spec.free_tree();
  for (std::string_view left = rest;;) {
    check<ConfigError>(at->is_map() || at->is_null(), "config.parse", "expected a mapping for ", quote(path),
                       " with the key ", quote(rest), ", got ", inline_yaml(*at), " (", origin_.at(line), ")");
    const auto dot = left.find('.');
    at = &(*at)[left.substr(0, dot)];
    if (dot == std::string_view::npos) break;
    left.remove_prefix(dot + 1);
  }
  *at = tree_of(value);
}

void Assignment::assign_list(const FieldSpec& spec, const std::string& path, const Node& value, int line) {
  const auto& list = std::get<SectionList>(spec.target);
  if (value.kind == Node::Kind::null) {
    list.reset(list.target, 0);
    return;
  }
  const auto refuse = [&](const std::string& what, const Node& got) {
    fail<ConfigError>("config.parse", "expected ", what, ", got ", got.describe(), " (", origin_.at(line), ")");
  };
  if (value.kind != Node::Kind::list) refuse(concat(expected_kind(spec), " for ", quote(path)), value);
  list.reset(list.target, value.items.size());
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    const Node& item = value.items[i];
    const std::string name = concat(path, "[", i, "]");
    if (item.kind != Node::Kind::map) refuse(concat("a mapping for ", quote(name)), item);
    assign_entries({list.at(list.target, i), name + "."}, item);
  }
}

void Assignment::refuse_twice(const std::string& path, int line) {
  const auto [found, added] = lines_.emplace(path, line);
  check<ConfigError>(added, "config.parse", "expected each key once, got ", quote(path), " twice (", origin_.at(line),
                     "; first in line ", found->second, ")");
}

void Assignment::unknown(const Place& place, const std::string& path, int line) const {
  std::vector<std::string> known = known_paths(root_);
  const auto here = known_paths(place.section, place.path);
  known.insert(known.end(), here.begin(), here.end());
  fail<ConfigError>("config.parse", "expected a known key, got ", quote(path), " (", origin_.at(line), ")",
                    did_you_mean(path, known));
}

}  // namespace danling::inline v0::detail
