// What Fields keeps of one field, and the tree of fields as the visitors walk it.
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

/// Where a field's value lives.
using Target =
    std::variant<bool*, int*, std::int64_t*, std::size_t*, float*, double*, std::string*, std::optional<bool>*,
                 std::optional<int>*, std::optional<std::int64_t>*, std::optional<std::size_t>*, std::optional<float>*,
                 std::optional<double>*, std::optional<std::string>*, std::vector<int>*, std::vector<std::int64_t>*,
                 std::vector<double>*, std::vector<std::string>*, std::optional<std::vector<int>>*,
                 std::optional<std::vector<std::int64_t>>*, std::optional<std::vector<double>>*,
                 std::optional<std::vector<std::string>>*, Section*, SectionList, SectionMap>;

/// A type without its std::optional.
template <class T>
struct Unwrapped {
  using type = T;
  static constexpr bool optional = false;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using type = T;
  static constexpr bool optional = true;
};

struct FieldSpec {
  std::string name;
  std::string help;
  std::string group;
  Target target;
  std::string unsupported;  // the missing feature, or empty
  bool semantic = true;
  bool any_case = false;
  std::vector<std::string> choices;
  std::vector<std::pair<std::string, std::string>> synonyms;  // value, meaning
  std::vector<std::pair<std::string, std::string>> refused;   // value, missing feature
  std::optional<double> low;
  bool above_low = false;  // low itself is refused
  std::optional<double> high;
  std::vector<std::string> aliases;

  bool is_section() const { return std::holds_alternative<Section*>(target); }
  bool is_list() const { return std::holds_alternative<SectionList>(target); }
  bool is_map() const { return std::holds_alternative<SectionMap>(target); }
  bool answers_to(std::string_view key) const;
};

/// Marks that a section hands down to its fields.
struct Inherited {
  std::string unsupported;
  bool semantic = true;
  Inherited below(const FieldSpec& spec) const {
    return {unsupported.empty() ? spec.unsupported : unsupported, semantic && spec.semantic};
  }
};

/// The value of a field that is not a section, a list of sections or a map of them.
ConfigTree value_of(const FieldSpec& spec);

/// "an integer", "a list of numbers or null": for messages.
std::string expected_kind(const FieldSpec& spec);

/// "integer", "numbers": for help.
std::string type_name(const FieldSpec& spec);

/// "from 0 to 1": the range of a field that has one.
std::string bounds(const FieldSpec& spec);

/// What the marks of a field say against its value, as "expected ..." text, or empty. Does not look at unsupported.
std::string objection(const FieldSpec& spec, const std::string& path, const ConfigTree& value);

/// The refusal of any value but the default of a field whose feature is missing.
std::string unsupported_text(const std::string& path, const ConfigTree& standard, const std::string& got,
                             const std::string& location, const std::string& reason);

/// @throws ConfigError for a field marked unsupported whose value is not that of `standard`, however it was set.
void refuse_unsupported(const Section& section, const Section& standard);

/// Every key path below `section`, sections included, for suggestions.
std::vector<std::string> known_paths(const Section& section, const std::string& prefix = "");

/// A value on one line, for messages.
std::string inline_yaml(const ConfigTree& tree);

bool same(const ConfigTree& a, const ConfigTree& b);

/// Fields of a constant section: the visitors that use this read only.
inline Section& readable(const Section& section) { return const_cast<Section&>(section); }

}  // namespace danling::inline v0::detail
