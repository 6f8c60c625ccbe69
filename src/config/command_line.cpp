// parse(): reads options of the command line into a config.
#include <algorithm>
#include <iostream>

#include <danling/config/config.hpp>
#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>

#include <config/assign.hpp>
#include <config/number.hpp>

namespace danling::inline v0 {
namespace detail {
namespace {

/// The field of a key on the command line; its kind determines how to read the text.
struct KeyInfo {
  enum class Kind { unknown, boolean, text, scalar, list, sections };
  Kind kind = Kind::unknown;
  bool optional = false;
  bool section = false;   ///< a section of the config's own fields
  bool switched = false;  ///< a section with a key `enabled`: the section's name without a value sets that key
  bool is_flag() const { return kind == Kind::boolean || switched; }
};

bool is_switched(ConstSectionRef section) {
  const Fields fields(section);
  const auto& specs = fields.specs();
  return std::any_of(specs.begin(), specs.end(), [](const auto& spec) {
    return spec->name == "enabled" && spec->reserved() == nullptr && expected_kind(*spec).starts_with("true");
  });
}

KeyInfo kind_of(const FieldSpec& spec) {
  const std::string kind = expected_kind(spec);
  KeyInfo found;
  found.optional = kind.ends_with(" or null");
  if (spec.is_section() || spec.is_list() || spec.is_map() || spec.free_tree() != nullptr) {
    found.kind = KeyInfo::Kind::sections;
    found.section = spec.is_section();
    found.switched = spec.is_section() && is_switched(std::get<SectionRef>(spec.target));
  } else if (kind.starts_with("a list")) {
    found.kind = KeyInfo::Kind::list;
  } else if (kind.starts_with("true")) {
    found.kind = KeyInfo::Kind::boolean;
  } else {
    found.kind = kind.starts_with("text") ? KeyInfo::Kind::text : KeyInfo::Kind::scalar;
  }
  return found;
}

KeyInfo kind_of(const ConfigTree& reserved, std::string_view path) {
  const ConfigTree* at = &reserved;
  while (at != nullptr && !path.empty()) {
    const auto dot = path.find('.');
    at = at->is_map() ? at->find(path.substr(0, dot)) : nullptr;
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  KeyInfo found;
  if (at != nullptr) {
    using Kind = KeyInfo::Kind;
    found.kind = at->is_map()    ? Kind::sections
                 : at->is_list() ? Kind::list
                 : at->is_bool() ? Kind::boolean
                                 : Kind::scalar;
    const ConfigTree* enabled = at->is_map() ? at->find("enabled") : nullptr;
    found.switched = enabled != nullptr && enabled->is_bool();
  }
  return found;
}

KeyInfo find(ConstSectionRef section, std::string_view path) {
  const auto dot = path.find('.');
  const std::string_view head = path.substr(0, dot);
  const bool ends = dot == std::string_view::npos;
  const Fields fields(section);
  for (const auto& spec : fields.specs()) {
    if (!spec->is_map() && spec->answers_to(head)) {
      if (const ReservedKey* key = spec->reserved()) return kind_of(key->value, ends ? "" : path.substr(dot + 1));
      if (ends || spec->free_tree() != nullptr) return kind_of(*spec);
      return spec->is_section() ? find(std::get<SectionRef>(spec->target), path.substr(dot + 1)) : KeyInfo();
    }
  }
  for (const auto& spec : fields.specs()) {
    if (spec->is_map() && !ends) {
      return find(std::get<SectionMap>(spec->target).make().section, path.substr(dot + 1));
    }
  }
  return {};
}

bool is_null(std::string_view text) {
  return text == "none" || text == "None" || (!text.empty() && is_null_word(text));
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Reads one value; text in quotes is always text.
Node word(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front()) {
    return Node::quoted_text(std::string(text.substr(1, text.size() - 2)), 0);
  }
  Node node = Node::plain(std::string(text), 0);
  if (is_null(text)) {
    node.kind = Node::Kind::null;  // keeps its text, since "none" may be a choice of the field
  }
  return node;
}

/// Position of the quote that closes an item which begins with one; 0 for other items.
std::size_t end_of_quote(std::string_view item) {
  const auto begin = item.find_first_not_of(' ');
  if (begin == std::string_view::npos || (item[begin] != '"' && item[begin] != '\'')) {
    return 0;
  }
  const auto end = item.find(item[begin], begin + 1);
  return end == std::string_view::npos ? 0 : end;
}

Node node_of(std::string_view text, const KeyInfo& found, const Origin& origin) {
  if (found.kind == KeyInfo::Kind::sections && (text.starts_with('{') || text.starts_with('['))) {
    return read_yaml(text, origin);
  }
  if (found.kind == KeyInfo::Kind::list && !(found.optional && is_null(text))) {
    if (text.starts_with('[')) {
      return read_yaml(text, origin);
    }
    Node list;
    list.kind = Node::Kind::list;
    while (!text.empty()) {
      const auto comma = text.find(',', end_of_quote(text));
      list.items.push_back(word(trimmed(text.substr(0, comma))));
      text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    }
    return list;
  }
  if (text.empty()) {
    // Empty text, as from an unset shell variable, must not reset an option to null; users write `null` for that.
    return Node::quoted_text("", 0);
  }
  if (found.kind == KeyInfo::Kind::text && !found.optional && (text == "none" || text == "None")) {
    return Node::quoted_text(std::string(text), 0);  // a word, as in a file: a text that is never null
  }
  return word(text);
}

void set(SectionRef config, std::string_view key, std::string_view value, const KeyInfo& found, const Origin& origin) {
  Assignment(config, origin).assign_at(std::string(key), node_of(value, found, origin));
}

bool asks_help(std::string_view argument) { return argument == "--help" || argument == "-h"; }

struct Option {
  std::string_view key;
  std::optional<std::string_view> value;
};

/// Returns the options in order. A word after a key is its value unless it begins with two dashes. After a bool key or
/// a section with a key `enabled`, only true, false, null or (for the section) a mapping is a value.
std::vector<Option> options_of(const Config& config, int argc, const char* const* argv) {
  std::vector<Option> out;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const bool follows_switch = !out.empty() && !out.back().value && !argument.starts_with("-");
    check<ConfigError>(!follows_switch, "config.parse", "expected true or false for ",
                       quote(follows_switch ? out.back().key : argument), ", got ", quote(argument), " (command line)");
    if (!argument.starts_with("--") || argument.size() <= 2) {
      const bool follows_list = !out.empty() && out.back().value && !argument.starts_with("--") &&
                                find(config, out.back().key).kind == KeyInfo::Kind::list;
      fail<ConfigError>(
          "config.parse", "expected '--key value', got ", quote(argument),
          follows_list ? concat("; write a list with commas: --", out.back().key, " ", *out.back().value, ",", argument)
                       : std::string(),
          " (command line)");
    }
    const auto equals = argument.find('=');
    Option option{argument.substr(2, equals == std::string_view::npos ? equals : equals - 2), {}};
    if (equals != std::string_view::npos) {
      option.value = argument.substr(equals + 1);
    } else if (i + 1 < argc && !std::string_view(argv[i + 1]).starts_with("--")) {
      const std::string_view next = argv[i + 1];
      const KeyInfo found = find(config, option.key);
      if (!found.is_flag() || parse_bool(next) || is_null(next) || (found.switched && next.starts_with('{'))) {
        option.value = next;
        ++i;
      }
    }
    out.push_back(option);
  }
  return out;
}

std::string program_name(int argc, const char* const* argv) {
  const std::string_view path = argc > 0 ? std::string_view(argv[0]) : std::string_view("program");
  return std::string(path.substr(path.rfind('/') + 1));
}

}  // namespace
}  // namespace detail

void set_option(SectionRef config, std::string_view key, std::string_view value, const std::string& origin) {
  detail::set(config, key, value, detail::find(config, key), {origin, false});
}

bool parse(Config& config, int argc, const char* const* argv, std::ostream& out) {
  for (const std::string_view taken : {"config", "help"}) {
    check<ConfigError>(detail::find(config, taken).kind == detail::KeyInfo::Kind::unknown, "config.parse",
                       "expected no field named ", quote(taken), ", which is an option of the command line");
  }
  for (int i = 1; i < argc; ++i) {
    if (detail::asks_help(argv[i])) {
      out << help(config, detail::program_name(argc, argv));
      return true;
    }
  }
  const ConfigTree before = to_tree(config);
  const auto options = detail::options_of(config, argc, argv);
  for (const auto& option : options) {
    if (option.key == "config") {
      check<ConfigError>(option.value && !option.value->empty(), "config.parse",
                         "expected a file after '--config', got none (command line)");
      load_config_file(config, std::string(*option.value));
    }
  }
  const detail::Origin origin{"command line", false};
  for (const auto& option : options) {
    if (option.key == "config") {
      continue;
    }
    const auto found = detail::find(config, option.key);
    const bool flag = found.is_flag();
    check<ConfigError>(option.value || flag || found.kind == detail::KeyInfo::Kind::unknown, "config.parse",
                       "expected a value after ", quote(concat("--", option.key)), ", got none (command line)");
    const std::string_view value = option.value.value_or(flag ? "true" : "");
    const bool is_null = !value.empty() && detail::is_null(value);
    check<ConfigError>(!is_null || !found.section || found.switched, "config.parse", "expected a mapping for ",
                       quote(option.key), ", got null (command line)");
    if (found.switched && (is_null || detail::parse_bool(value))) {
      set_option(config, concat(option.key, ".enabled"), value, origin.name);
    } else {
      detail::set(config, option.key, value, found, origin);
    }
  }
  const ConfigTree different = changed_entries(to_tree(config), before);
  std::vector<std::string> keys;
  for (const auto& entry : different.map()) {
    keys.push_back(entry.key.string());
  }
  config.base_post(keys);
  finalize(config);
  return false;
}

bool parse(Config& config, int argc, const char* const* argv) { return parse(config, argc, argv, std::cout); }

}  // namespace danling::inline v0
