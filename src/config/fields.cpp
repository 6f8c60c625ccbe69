// Fields: collects the fields of a section and their marks.
#include <algorithm>
#include <limits>
#include <type_traits>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>

#include <config/field_spec.hpp>
#include <config/number.hpp>

namespace danling::inline v0 {

using detail::FieldSpec;

Section::~Section() = default;
void Section::base_fields(Fields&) {}

Field& Field::non_semantic() {
  spec_->semantic = false;
  return *this;
}
Field& Field::choices(std::vector<std::string> values) {
  spec_->choices = std::move(values);
  return *this;
}
Field& Field::synonym(std::string_view value, std::string_view meaning) {
  spec_->synonyms.emplace_back(value, meaning);
  return *this;
}
Field& Field::refuse(std::string_view value, std::string_view reason) {
  spec_->refused.emplace_back(value, reason);
  return *this;
}
Field& Field::case_insensitive() {
  spec_->case_insensitive = true;
  return *this;
}
Field& Field::range(double low, double high) {
  spec_->low = low;
  spec_->high = high;
  return *this;
}
Field& Field::at_least(double low) {
  spec_->low = low;
  return *this;
}
Field& Field::above(double low) {
  spec_->above_low = true;
  return at_least(low);
}
Field& Field::alias(std::string_view name) {
  spec_->aliases.emplace_back(name);
  return *this;
}

SectionRef::SectionRef(Section& section)
    : section_(&section), list_([](void* s, Fields& f) {
        auto& listed = *static_cast<Section*>(s);
        listed.base_fields(f);
        f.group("");
        listed.fields(f);
      }) {}

Fields::Fields(ConstSectionRef section) { section.ref_.list_(section.ref_.section_, *this); }

Fields::~Fields() = default;

void Fields::group(std::string_view heading) { group_ = heading; }

FieldSpec& Fields::add(std::string_view name, std::string_view help) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const bool well_formed = !name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9');
  });
  check<ConfigError>(well_formed, "config.fields", "expected a field name of letters, digits and underscores, got ",
                     quote(name));
  // Builds the message only on failure: building it for each pair of fields took a tenth of the time of a short run.
  if (std::any_of(specs_.begin(), specs_.end(), [&](const auto& spec) { return spec->answers_to(name); })) {
    fail<ConfigError>("config.fields", "expected each field once, got ", quote(name),
                      " twice: the config or one that it derives from has it already; rename the new one");
  }
  specs_.push_back(std::make_unique<FieldSpec>());
  FieldSpec& spec = *specs_.back();
  spec.name = name;
  spec.help = help;
  spec.group = group_;
  return spec;
}

using Pair = std::pair<double, double>;
#define DANLING_FIELD(type)                                                             \
  Field Fields::operator()(std::string_view name, type& value, std::string_view help) { \
    FieldSpec& spec = add(name, help);                                                  \
    spec.target = &value;                                                               \
    return Field(spec);                                                                 \
  }
DANLING_FIELD(bool)
DANLING_FIELD(int)
DANLING_FIELD(std::int64_t)
DANLING_FIELD(std::size_t)
DANLING_FIELD(float)
DANLING_FIELD(double)
DANLING_FIELD(std::string)
DANLING_FIELD(std::optional<bool>)
DANLING_FIELD(std::optional<int>)
DANLING_FIELD(std::optional<std::int64_t>)
DANLING_FIELD(std::optional<std::size_t>)
DANLING_FIELD(std::optional<float>)
DANLING_FIELD(std::optional<double>)
DANLING_FIELD(std::optional<std::string>)
DANLING_FIELD(std::vector<int>)
DANLING_FIELD(std::vector<std::int64_t>)
DANLING_FIELD(std::vector<double>)
DANLING_FIELD(std::vector<std::string>)
DANLING_FIELD(std::optional<std::vector<int>>)
DANLING_FIELD(std::optional<std::vector<std::int64_t>>)
DANLING_FIELD(std::optional<std::vector<double>>)
DANLING_FIELD(std::optional<std::vector<std::string>>)
DANLING_FIELD(std::optional<Pair>)
#undef DANLING_FIELD

Field Fields::operator()(std::string_view name, SectionRef value, std::string_view help) {
  FieldSpec& spec = add(name, help);
  spec.target = value;
  return Field(spec);
}

Field Fields::operator()(std::string_view name, ConfigTree& value, std::string_view help) {
  FieldSpec& spec = add(name, help);
  spec.target = &value;
  return Field(spec);
}

void Fields::reserved(const ReservedKey& key) { add(key.key, "").target = &key; }

Field Fields::list(std::string_view name, detail::SectionList value, std::string_view help) {
  FieldSpec& spec = add(name, help);
  spec.target = value;
  return Field(spec);
}

Field Fields::add_text(std::string_view name, detail::TextValue value, std::string_view help) {
  FieldSpec& spec = add(name, help);
  spec.choices = value.names;
  auto& text = spec.as_text.emplace(std::move(value)).text;
  if (spec.as_text->optional) {
    spec.target = &text;
  } else {
    spec.target = &*text;
  }
  return Field(spec);
}

Field Fields::map(std::string_view placeholder, detail::SectionMap value, std::string_view help) {
  for (const auto& spec : specs_) {
    check<ConfigError>(!spec->is_map(), "config.fields", "expected one others() per section, got ", quote(placeholder),
                       " and ", quote(spec->name));
  }
  FieldSpec& spec = add(placeholder, help);
  spec.target = value;
  return Field(spec);
}

namespace detail {
namespace {

template <class T>
ConfigTree scalar(const T& value) {
  if constexpr (std::is_same_v<T, float>) {
    // Converts through text, so that 0.1f becomes 0.1, not 0.10000000149.
    return ConfigTree(float_as_double(value));
  } else if constexpr (std::is_same_v<T, std::size_t>) {
    check<ConfigError>(value <= static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()), "config.fields",
                       "expected a count of at most 2^63 - 1, got ", value);
    return ConfigTree(static_cast<std::int64_t>(value));
  } else {
    return ConfigTree(value);
  }
}

template <class T>
ConfigTree tree_of(const T& value) {
  return scalar(value);
}
template <class T>
ConfigTree tree_of(const std::vector<T>& values) {
  ConfigTree::List items;
  for (const auto& value : values) {
    items.push_back(scalar(value));
  }
  return ConfigTree(std::move(items));
}
ConfigTree tree_of(const ConfigTree& value) { return value; }
ConfigTree tree_of(const std::pair<double, double>& value) {
  return ConfigTree(ConfigTree::List{scalar(value.first), scalar(value.second)});
}
template <class T>
ConfigTree tree_of(const std::optional<T>& value) {
  return value ? tree_of(*value) : ConfigTree();
}

template <class T>
constexpr const char* kind_name() {
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_integral_v<T>) return "integer";
  if constexpr (std::is_floating_point_v<T>) return "number";
  return "text";
}

template <class T>
std::string kind_phrase() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::size_t>) return "an integer of at least 0";
  if constexpr (std::is_same_v<T, int>) return "an integer of 32 bits";
  if constexpr (std::is_integral_v<T>) return "an integer";
  if constexpr (std::is_floating_point_v<T>) return "a number";
  return "text";
}

template <class T>
struct Kind {
  static std::string phrase() { return kind_phrase<T>(); }
  static std::string name() { return kind_name<T>(); }
};
template <class T>
struct Kind<std::vector<T>> {
  static std::string phrase() {
    return std::is_same_v<T, std::string> ? std::string("a list of texts") : concat("a list of ", kind_name<T>(), "s");
  }
  static std::string name() { return concat("[", kind_name<T>(), ",...]"); }
};
template <>
struct Kind<std::pair<double, double>> {
  static std::string phrase() { return "a list of two numbers"; }
  static std::string name() { return "[number,number]"; }
};

void add_paths(const ConfigTree& tree, const std::string& path, std::vector<std::string>& out) {
  out.push_back(path);
  if (tree.is_map()) {
    for (const auto& entry : tree.map()) {
      add_paths(entry.value, concat(path, ".", entry.key.string()), out);
    }
  }
}

}  // namespace

bool FieldSpec::answers_to(std::string_view key) const {
  return name == key || std::find(aliases.begin(), aliases.end(), key) != aliases.end();
}

const ReservedKey* FieldSpec::reserved() const {
  const auto* key = std::get_if<const ReservedKey*>(&target);
  return key == nullptr ? nullptr : *key;
}

ConfigTree* FieldSpec::free_tree() const {
  ConfigTree* const* tree = std::get_if<ConfigTree*>(&target);
  return tree == nullptr ? nullptr : *tree;
}

ConfigTree value_of(const FieldSpec& spec) {
  return std::visit(
      [](const auto& target) -> ConfigTree {
        using T = std::decay_t<decltype(target)>;
        if constexpr (std::is_same_v<T, const ReservedKey*>) {
          return target->value;
        } else if constexpr (!std::is_pointer_v<T>) {
          return {};
        } else {
          return tree_of(*target);
        }
      },
      spec.target);
}

std::string expected_kind(const FieldSpec& spec) {
  return std::visit(
      [](const auto& target) -> std::string {
        using T = std::decay_t<decltype(target)>;
        if constexpr (std::is_same_v<T, SectionList>) {
          return "a list of mappings";
        } else if constexpr (std::is_same_v<T, ConfigTree*>) {
          return "a mapping, text or null";
        } else if constexpr (!std::is_pointer_v<T> || std::is_same_v<T, const ReservedKey*>) {
          return "a mapping";
        } else {
          using U = Unwrapped<std::decay_t<decltype(*target)>>;
          return Kind<typename U::type>::phrase() + (U::optional ? " or null" : "");
        }
      },
      spec.target);
}

std::string type_name(const FieldSpec& spec) {
  return std::visit(
      [](const auto& target) -> std::string {
        using T = std::decay_t<decltype(target)>;
        if constexpr (std::is_same_v<T, SectionList>) {
          return "[{...},...]";
        } else if constexpr (!std::is_pointer_v<T> || std::is_same_v<T, const ReservedKey*> ||
                             std::is_same_v<T, ConfigTree*>) {
          return "{...}";
        } else {
          return Kind<typename Unwrapped<std::decay_t<decltype(*target)>>::type>::name();
        }
      },
      spec.target);
}

std::string to_lower(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  }
  return text;
}

std::vector<std::string> known_paths(SectionRef section, const std::string& prefix) {
  std::vector<std::string> out;
  const auto descend = [&](SectionRef child, const std::string& path) {
    const auto below = known_paths(child, path + ".");
    out.insert(out.end(), below.begin(), below.end());
  };
  const Fields fields(section);
  for (const auto& spec : fields.specs()) {
    if (spec->is_map()) {
      const auto& map = std::get<SectionMap>(spec->target);
      for (const auto& name : map.names(map.target)) {
        descend(map.at(map.target, name), prefix + name);
      }
      continue;
    }
    if (const ReservedKey* key = spec->reserved()) {
      add_paths(key->value, prefix + spec->name, out);
      continue;
    }
    out.push_back(prefix + spec->name);
    if (spec->is_section()) {
      descend(std::get<SectionRef>(spec->target), out.back());
    }
  }
  return out;
}

}  // namespace detail
}  // namespace danling::inline v0
