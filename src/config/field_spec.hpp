// FieldSpec: the data of one listed field, and functions that the visitors share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <danling/config/fields.hpp>
#include <danling/config/tree.hpp>

namespace danling::inline v0::detail {

/// A pointer to the value of a field.
using Target =
    std::variant<bool*, int*, std::int64_t*, std::size_t*, float*, double*, std::string*, std::optional<bool>*,
                 std::optional<int>*, std::optional<std::int64_t>*, std::optional<std::size_t>*, std::optional<float>*,
                 std::optional<double>*, std::optional<std::string>*, std::vector<int>*, std::vector<std::int64_t>*,
                 std::vector<double>*, std::vector<std::string>*, std::optional<std::vector<int>>*,
                 std::optional<std::vector<std::int64_t>>*, std::optional<std::vector<double>>*,
                 std::optional<std::vector<std::string>>*, std::optional<std::pair<double, double>>*, SectionRef,
                 SectionList, SectionMap, const ReservedKey*, ConfigTree*>;

struct FieldSpec {
  std::string name;
  std::string help;
  std::string group;
  Target target;
  std::optional<TextValue> as_text;  // for a type with TextTraits; `target` then points to its text
  bool semantic = true;
  bool case_insensitive = false;
  std::vector<std::string> choices;
  std::vector<std::pair<std::string, std::string>> synonyms;  // value, meaning
  std::vector<std::pair<std::string, std::string>> refused;   // value, reason
  std::optional<double> low;
  bool above_low = false;  // `low` is exclusive
  std::optional<double> high;
  std::vector<std::string> aliases;

  bool is_section() const { return std::holds_alternative<SectionRef>(target); }
  bool is_list() const { return std::holds_alternative<SectionList>(target); }
  bool is_map() const { return std::holds_alternative<SectionMap>(target); }
  /// The value of a field that accepts any mapping; null for other fields.
  ConfigTree* free_tree() const;
  /// The reserved key; null for other fields.
  const ReservedKey* reserved() const;
  bool answers_to(std::string_view key) const;
};

/// Returns the value of a field that is not a section, a list of sections or a map of sections.
ConfigTree value_of(const FieldSpec& spec);

/// Returns the kind for messages, such as "an integer" or "a list of numbers or null".
std::string expected_kind(const FieldSpec& spec);

/// Returns the type for help, such as "integer" or "numbers".
std::string type_name(const FieldSpec& spec);

/// Returns the range of a field that has one, such as "from 0 to 1".
std::string bounds(const FieldSpec& spec);

/// Returns "expected ..." for the first violated mark of a field, or an empty text.
std::string find_violation(const FieldSpec& spec, const std::string& path, const ConfigTree& value);

/// Returns every key path below `section`, including sections, for suggestions.
std::vector<std::string> known_paths(SectionRef section, const std::string& prefix = "");

/// Converts only ASCII letters, in any locale.
std::string to_lower(std::string text);

/// Formats a value on one line, for messages.
std::string inline_yaml(const ConfigTree& tree);

bool same(const ConfigTree& a, const ConfigTree& b);
}  // namespace danling::inline v0::detail
