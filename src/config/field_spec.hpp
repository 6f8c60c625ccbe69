// Data of one listed field, and the tree of fields as the visitors traverse it.
#pragma once

#include <cstdint>
#include <danling/config/fields.hpp>
#include <danling/config/tree.hpp>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace danling::inline v0::detail {

/// Pointer to a field's value.
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
  std::optional<TextValue> as_text;  // of a type with TextTraits; `target` is its text
  bool semantic = true;
  bool case_insensitive = false;
  std::vector<std::string> choices;
  std::vector<std::pair<std::string, std::string>> synonyms;  // value, meaning
  std::vector<std::pair<std::string, std::string>> refused;   // value, missing feature
  std::optional<double> low;
  bool above_low = false;  // low itself is refused
  std::optional<double> high;
  std::vector<std::string> aliases;

  bool is_section() const { return std::holds_alternative<SectionRef>(target); }
  bool is_list() const { return std::holds_alternative<SectionList>(target); }
  bool is_map() const { return std::holds_alternative<SectionMap>(target); }
  /// The value of a field that takes any mapping, or null.
  ConfigTree* free_tree() const;
  /// The reserved key, or null.
  const ReservedKey* reserved() const;
  bool answers_to(std::string_view key) const;
};

/// The value of a field that is not a section, a list of sections or a map of them.
ConfigTree value_of(const FieldSpec& spec);

/// "an integer", "a list of numbers or null": for messages.
std::string expected_kind(const FieldSpec& spec);

/// "integer", "numbers": for help.
std::string type_name(const FieldSpec& spec);

/// "from 0 to 1": the range of a field that has one.
std::string bounds(const FieldSpec& spec);

/// The violated mark of a field, as "expected ..." text, or empty.
std::string find_violation(const FieldSpec& spec, const std::string& path, const ConfigTree& value);

/// Every key path below `section`, sections included, for suggestions.
std::vector<std::string> known_paths(SectionRef section, const std::string& prefix = "");

/// Converts ASCII letters only, in any locale.
std::string to_lower(std::string text);

/// A value on one line, for messages.
std::string inline_yaml(const ConfigTree& tree);

bool same(const ConfigTree& a, const ConfigTree& b);
}  // namespace danling::inline v0::detail
