// Writes the help text from the field list.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <danling/config/config.hpp>

#include <config/field_spec.hpp>
#include <core/fmt.hpp>

namespace danling::inline v0 {
namespace detail {
namespace {

constexpr std::size_t description_column = 36;

std::size_t terminal_width() {
  winsize size{};
  const bool terminal = isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return terminal && size.ws_col > 0 ? size.ws_col : 100;
}

/// Breaks `text` at spaces into lines of at most `width` characters; a longer word gets a separate line.
std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const auto space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    text = space == std::string_view::npos ? std::string_view() : text.substr(space + 1);
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) {
      line += ' ';
    }
    line += word;
  }
  lines.push_back(std::move(line));
  return lines;
}

class Writer {
 public:
  explicit Writer(std::size_t width) : width_(std::max<std::size_t>(width, 60)) {}

  std::string text;

  void heading(const std::string& title) {
    for (const auto& line : wrapped(title, width_)) {
      text += "\n" + line;
    }
    text += "\n";
  }

  void item(const std::string& name, const std::string& description) {
    std::string left = "  " + name;
    if (left.size() + 2 > description_column) {
      text += left + "\n";
      left.clear();
    }
    for (const auto& line : wrapped(description, width_ - description_column)) {
      text += format_text("{:<{}}{}\n", std::exchange(left, {}), description_column, line);
    }
  }

  void paragraph(const std::string& content) {
    for (const auto& line : wrapped(content, width_ - 2)) {
      text += "  " + line + "\n";
    }
  }

 private:
  std::size_t width_;
};

std::string description(const FieldSpec& spec) {
  std::string out = spec.help;
  if (!spec.choices.empty()) {
    out += concat("; one of ", join(spec.choices));
  }
  if (spec.low && spec.high) {
    out += concat("; ", bounds(spec));
  }
  if (!spec.aliases.empty()) {
    out += concat("; also called ", join(spec.aliases));
  }
  const ConfigTree value = value_of(spec);
  const bool unset = spec.is_list() || spec.is_map() || value.is_null();
  return out + (unset ? "" : concat(" (default: ", inline_yaml(value), ")"));
}

/// The keys of missing features, by feature, in order of occurrence.
using Missing = std::vector<std::pair<std::string, std::vector<std::string>>>;

void add_missing(Missing& missing, std::string_view reason, std::string key) {
  for (auto& [known, keys] : missing) {
    if (known == reason) {
      keys.push_back(std::move(key));
      return;
    }
  }
  missing.push_back({std::string(reason), {std::move(key)}});
}

struct Subsection {
  std::string path;
  std::string heading;
  SectionRef section;
};

void write_section(Writer& writer, Missing& missing, ConstSectionRef section, const std::string& prefix,
                   const std::string* group);

void write_subsection(Writer& writer, Missing& missing, const Subsection& sub) {
  writer.heading(sub.path + ": " + sub.heading);
  write_section(writer, missing, sub.section, sub.path + ".", nullptr);
}

/// Writes the fields of a section, then its subsections; `group` limits the top level to one heading.
void write_section(Writer& writer, Missing& missing, ConstSectionRef section, const std::string& prefix,
                   const std::string* group) {
  const Fields fields(section);
  std::vector<Subsection> below;
  for (const auto& spec : fields.specs()) {
    if (group != nullptr && spec->group != *group) {
      continue;
    }
    const std::string path = prefix + spec->name;
    if (const ReservedKey* key = spec->reserved()) {
      add_missing(missing, key->feature, path + (key->value.is_map() ? ".*" : ""));
    } else if (spec->is_section()) {
      below.push_back({path, spec->help, std::get<SectionRef>(spec->target)});
    } else if (spec->is_map()) {
      writer.item(concat("--", prefix, "<", spec->name, ">.KEY VALUE"), description(*spec));
    } else {
      writer.item(concat("--", path, " ", type_name(*spec)), description(*spec));
      if (spec->is_list()) {
        const auto entry = std::get<SectionList>(spec->target).make();
        writer.item("", "keys of each entry: " + join(known_paths(entry.section)));
      }
    }
  }
  for (const auto& sub : below) {
    write_subsection(writer, missing, sub);
  }
}

}  // namespace
}  // namespace detail

std::string help(const Config& config, std::string_view program, std::size_t width) {
  detail::Writer writer(width == 0 ? detail::terminal_width() : width);
  writer.text = concat("usage: ", program, " [--config FILE]... [--KEY VALUE]...\n\n");
  writer.item("--config FILE",
              "YAML or JSON file with any of the keys below; may be repeated. Later files win over "
              "earlier ones, options win over files.");
  writer.item("--help", "this text");
  std::vector<std::string> groups;
  const Fields fields(config);
  for (const auto& spec : fields.specs()) {
    if (std::find(groups.begin(), groups.end(), spec->group) == groups.end()) {
      groups.push_back(spec->group);
    }
  }
  // The groups of the program come first.
  std::stable_partition(groups.begin(), groups.end(), [](const std::string& group) { return group.empty(); });
  detail::Missing missing;
  for (const auto& group : groups) {
    detail::Writer part = writer;
    part.text.clear();
    detail::write_section(part, missing, config, "", &group);
    if (part.text.empty()) {
      continue;
    }
    const bool only_sections = part.text[0] == '\n';
    if (!only_sections) {
      writer.heading(group.empty() ? "Options of this program" : group);
    }
    writer.text += part.text;
  }
  if (!missing.empty()) {
    writer.heading("Not available in this release: only the default value is accepted");
    for (const auto& [reason, keys] : missing) {
      writer.paragraph(concat(reason, ": ", join(keys)));
    }
  }
  return writer.text;
}

}  // namespace danling::inline v0
