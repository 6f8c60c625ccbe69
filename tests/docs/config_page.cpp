// Writes docs/config.md from the field list of RunnerConfig, or compares the page with it.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <danling/core/format.hpp>
#include <danling/runner/runner_config.hpp>

#include "config/field_spec.hpp"

namespace {

using namespace danling;
using detail::FieldSpec;

constexpr std::string_view introduction = R"(# Config reference

This page lists every key of `RunnerConfig` (`runner/runner_config.hpp`). Set a key in a YAML or JSON file
(`--config run.yaml`), on the command line (`--optim.lr 1e-3`), or as a member of the struct. [The guide](guide.md)
explains sources, sections of several models and of splits, and errors. Your own config adds keys to these; `--help` of
its program lists all keys.

- **type**: the choices, if there are any; `[text,...]` is a list, `[{...},...]` a list of sections.
- **default**: empty if the key is unset (`null`).
- **id**: a key marked with x enters the config's hash, which names the run. Resume refuses a checkpoint with another hash.
  The other keys only affect how or where it runs.
- **meaning**: ends with synonyms: `half`: `fp16` means that `half` is accepted and stands for `fp16`.

This page is generated. `tests/docs/config_page.cpp` writes it, and the test `config_page` compares it. To rewrite it:
`cmake --build build/release --target config_page_write`.
)";

// Characters that Markdown would read, outside of code.
std::string escaped(std::string_view text) {
  std::string out;
  bool in_code = false;
  for (const char c : text) {
    in_code = c == '`' ? !in_code : in_code;
    if (c == '|' || (!in_code && (c == '<' || c == '*' || c == '['))) {
      out += '\\';
    }
    out += c;
  }
  return out;
}

std::string code(std::string_view text) { return text.empty() ? std::string() : concat("`", text, "`"); }

std::string type_of(const FieldSpec& spec) {
  if (spec.choices.empty()) {
    return code(detail::type_name(spec));
  }
  std::string out;
  for (const std::string& choice : spec.choices) {
    out += (out.empty() ? "" : ", ") + code(choice);
  }
  return out;
}

std::string default_of(const FieldSpec& spec) {
  const ConfigTree value = detail::value_of(spec);
  return spec.is_list() || spec.is_map() || value.is_null() ? std::string() : code(detail::inline_yaml(value));
}

// The keys of a section that are not in `others`.
std::string keys_of(SectionRef section, const std::vector<std::string>& others) {
  std::string out;
  for (const std::string& key : detail::known_paths(section)) {
    if (std::find(others.begin(), others.end(), key) == others.end()) {
      out += " " + code(key);
    }
  }
  return out;
}

// `siblings`: names of the other fields of the section.
std::string meaning_of(const FieldSpec& spec, const std::vector<std::string>& siblings) {
  std::string out = escaped(spec.help);
  if (spec.low || spec.high) {
    const std::string bounds = detail::bounds(spec);
    out += "; " + bounds.substr(bounds.starts_with("of ") ? 3 : 0);
  }
  for (const auto& [value, meaning] : spec.synonyms) {
    out += concat("; ", code(value), ": ", code(meaning));
  }
  for (const std::string& alias : spec.aliases) {
    out += concat("; also called ", code(alias));
  }
  if (spec.is_list()) {
    out += ". Keys of each:" + keys_of(std::get<detail::SectionList>(spec.target).make().section, {});
  } else if (spec.is_map()) {
    const std::string keys = keys_of(std::get<detail::SectionMap>(spec.target).make().section, siblings);
    out += siblings.empty() ? ". Keys:" + keys
           : keys.empty()   ? ". Keys: those above"
                            : ". Keys: those above, and" + keys;
  }
  return out;
}

// Keys without a feature here: path, default, what they would be for.
struct Reserved {
  std::string path, value;
  std::string_view feature;
};

void collect(std::vector<Reserved>& out, const std::string& path, const ConfigTree& value, std::string_view feature) {
  if (value.is_map()) {
    for (const auto& entry : value.map()) {
      collect(out, path + "." + entry.key.string(), entry.value, feature);
    }
  } else {
    out.push_back({path, value.is_null() ? "" : detail::inline_yaml(value), feature});
  }
}

class Page {
 public:
  std::string text{introduction};

  void write(ConstSectionRef config) {
    const Fields fields(config);
    std::vector<std::string> groups;
    for (const auto& spec : fields.specs()) {
      if (std::find(groups.begin(), groups.end(), spec->group) == groups.end()) {
        groups.push_back(spec->group);
      }
    }
    for (const std::string& group : groups) {
      text += concat("\n## ", group, "\n");
      section(config, "", true, &group);
    }
    text +=
        "\n## Known keys without a feature\n\nKeys of DanLing. Any value but the default is an error that names the "
        "feature.\n\n| key | default | feature |\n|---|---|---|\n";
    for (const Reserved& key : reserved_) {
      text += concat("| ", code(key.path), " | ", code(key.value), " | ", escaped(key.feature), " |\n");
    }
  }

 private:
  void section(ConstSectionRef section, const std::string& prefix, bool semantic, const std::string* group) {
    const Fields fields(section);
    std::string rows;
    std::vector<std::string> siblings;
    for (const auto& spec : fields.specs()) {
      if (!spec->is_map() && spec->reserved() == nullptr) {
        siblings.push_back(spec->name);
      }
    }
    for (const auto& spec : fields.specs()) {
      if ((group != nullptr && spec->group != *group) || spec->is_section()) {
        continue;
      }
      if (const ReservedKey* key = spec->reserved()) {
        collect(reserved_, prefix + spec->name, key->value, key->feature);
        continue;
      }
      const std::string path = spec->is_map() ? concat(prefix, "<", spec->name, ">.KEY") : prefix + spec->name;
      rows += concat("| ", code(path), " | ", spec->is_map() ? "" : type_of(*spec), " | ", default_of(*spec), " | ",
                     semantic && spec->semantic ? "x" : "", " | ", meaning_of(*spec, siblings), " |\n");
    }
    if (!rows.empty()) {
      text += "\n| key | type | default | id | meaning |\n|---|---|---|---|---|\n" + rows;
    }
    for (const auto& spec : fields.specs()) {
      if (spec->is_section() && (group == nullptr || spec->group == *group)) {
        const std::string path = prefix + spec->name;
        std::string alias;
        for (const std::string& name : spec->aliases) {
          alias += concat("; also called ", code(prefix + name));
        }
        std::string help = escaped(spec->help);
        help[0] = help[0] >= 'a' && help[0] <= 'z' ? static_cast<char>(help[0] - 'a' + 'A') : help[0];
        text += concat("\n### ", path, "\n\n", help, alias, ".\n");
        this->section(std::get<SectionRef>(spec->target), path + ".", semantic && spec->semantic, nullptr);
      }
    }
  }

  std::vector<Reserved> reserved_;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    out.push_back(line);
  }
  return out;
}

int compare(const std::string& file, const std::string& page) {
  std::ifstream in(file);
  std::ostringstream found;
  found << in.rdbuf();
  if (found.str() == page) {
    return 0;
  }
  const auto old_lines = lines_of(found.str());
  const auto new_lines = lines_of(page);
  const auto [a, b] = std::mismatch(old_lines.begin(), old_lines.end(), new_lines.begin(), new_lines.end());
  std::cerr << file << " is out of date, from line " << a - old_lines.begin() + 1
            << " on\n  the page:   " << (a == old_lines.end() ? "(its end)" : *a)
            << "\n  the fields: " << (b == new_lines.end() ? "(their end)" : *b)
            << "\nTo rewrite it: cmake --build build/release --target config_page_write\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 2 || (arguments[0] != "--write" && arguments[0] != "--check")) {
    std::cerr << "usage: config_page --write FILE | --check FILE\n";
    return 2;
  }
  RunnerConfig config;
  Page page;
  page.write(config);
  if (arguments[0] == "--check") {
    return compare(arguments[1], page.text);
  }
  std::ofstream out(arguments[1]);
  out << page.text;
  out.close();
  return out ? 0 : 1;
}
