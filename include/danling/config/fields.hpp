// Fields: a config lists each field once, for parsing, --help, saving, comparing and hashing.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <danling/core/text_traits.hpp>

namespace danling::inline v0 {

class Fields;
struct ReservedKey;
struct NoTensor;
template <class TensorType>
class Tree;
using ConfigTree = Tree<NoTensor>;  // danling/config/tree.hpp

/// A struct that lists its fields: a Section, or the options of a component, which remain an aggregate.
template <class T>
concept Listed = requires(T& section, Fields& f) { section.fields(f); };

/// A group of fields: a whole config, or a named part of one (`optim`). Copies are independent.
class Section {
 public:
  virtual ~Section();

  /// Lists every field once: `f("hidden", hidden, "hidden units");`. Called at each read or write of the fields, so it
  /// must list the same members each time and change nothing.
  virtual void fields(Fields& f) = 0;

  /// Fields of the library's classes, listed before fields(), so that an override cannot lose them.
  virtual void base_fields(Fields& f);

 protected:
  Section() = default;
  Section(const Section&) = default;
  Section& operator=(const Section&) = default;
};

/// A reference to any struct that lists its fields.
class SectionRef {
 public:
  SectionRef(Section& section);  // NOLINT(google-explicit-constructor)
  template <Listed S>
    requires(!std::derived_from<S, Section>)
  SectionRef(S& section)  // NOLINT(google-explicit-constructor)
      : section_(&section), list_([](void* s, Fields& f) { static_cast<S*>(s)->fields(f); }) {}

 private:
  friend class Fields;
  void* section_;
  void (*list_)(void*, Fields&);
};

/// A read-only SectionRef.
class ConstSectionRef {
 public:
  template <Listed S>
  ConstSectionRef(const S& section) : ref_(const_cast<S&>(section)) {}  // NOLINT(google-explicit-constructor)
  ConstSectionRef(SectionRef ref) : ref_(ref) {}                        // NOLINT(google-explicit-constructor)

 private:
  friend class Fields;
  SectionRef ref_;
};

namespace detail {
struct FieldSpec;
struct OwnedSection {
  std::shared_ptr<void> owner;
  SectionRef section;
  template <class S>
  static OwnedSection make() {
    auto made = std::make_shared<S>();
    return {made, *made};
  }
};
struct SectionList {
  void* target;
  std::size_t (*size)(const void*);
  SectionRef (*at)(void*, std::size_t);
  void (*reset)(void*, std::size_t);
  void (*copy)(void*, const void*);
  OwnedSection (*make)();
};
/// Removes std::optional from a type.
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
struct TextValue {
  std::optional<std::string> text;
  bool optional = false;
  /// Sets the value; returns false if the text is invalid for the type.
  std::function<bool(const std::optional<std::string>&)> store = {};
  std::vector<std::string> names = {};
  std::string_view expected = {};
};
struct SectionMap {
  void* target;
  std::vector<std::string> (*names)(const void*);
  SectionRef (*at)(void*, const std::string&);
  OwnedSection (*make)();
};
}  // namespace detail

/// A listed field, for marks: `f("lr", lr, "learning rate").at_least(0)`. Each mark returns the field.
class Field {
 public:
  /// Excludes the field from the canonical form and hash: it affects where or how a run happens, not its results. On a
  /// section, applies to all its fields.
  Field& non_semantic();
  /// The allowed values of a text field; files and the command line may write them in any case.
  Field& choices(std::vector<std::string> values);
  /// Accepts `value`; the canonical form replaces it by `meaning`.
  Field& synonym(std::string_view value, std::string_view meaning);
  /// Ignores case: converts the value to lower case on reading and in the canonical form.
  Field& case_insensitive();
  /// Refuses `value`, a choice whose feature is not available, with `reason`.
  Field& refuse(std::string_view value, std::string_view reason);
  /// Inclusive bounds of a number, or of each number of a list.
  Field& range(double low, double high);
  Field& at_least(double low);
  /// An exclusive lower bound.
  Field& above(double low);
  /// Accepts a second name of the key; saving uses the first name.
  Field& alias(std::string_view name);

 private:
  friend class Fields;
  explicit Field(detail::FieldSpec& spec) : spec_(&spec) {}
  detail::FieldSpec* spec_;
};

/// The list that Section::fields() fills. Names consist of letters, digits and underscores and do not begin with a
/// digit.
class Fields {
 public:
  /// Lists the fields of `section`. @throws ConfigError for a malformed or repeated name
  explicit Fields(ConstSectionRef section);
  ~Fields();
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  Field operator()(std::string_view name, bool& value, std::string_view help);
  Field operator()(std::string_view name, int& value, std::string_view help);
  Field operator()(std::string_view name, std::int64_t& value, std::string_view help);
  Field operator()(std::string_view name, std::size_t& value, std::string_view help);
  Field operator()(std::string_view name, float& value, std::string_view help);
  Field operator()(std::string_view name, double& value, std::string_view help);
  Field operator()(std::string_view name, std::string& value, std::string_view help);

  // An optional field may be null, which means "not set".
  Field operator()(std::string_view name, std::optional<bool>& value, std::string_view help);
  Field operator()(std::string_view name, std::optional<int>& value, std::string_view help);
  Field operator()(std::string_view name, std::optional<std::int64_t>& value, std::string_view help);
  Field operator()(std::string_view name, std::optional<std::size_t>& value, std::string_view help);
  Field operator()(std::string_view name, std::optional<float>& value, std::string_view help);
  Field operator()(std::string_view name, std::optional<double>& value, std::string_view help);
  Field operator()(std::string_view name, std::optional<std::string>& value, std::string_view help);

  Field operator()(std::string_view name, std::optional<std::pair<double, double>>& value, std::string_view help);

  // Sources may write a list of one value as the value.
  Field operator()(std::string_view name, std::vector<int>& value, std::string_view help);
  Field operator()(std::string_view name, std::vector<std::int64_t>& value, std::string_view help);
  Field operator()(std::string_view name, std::vector<double>& value, std::string_view help);
  Field operator()(std::string_view name, std::vector<std::string>& value, std::string_view help);
  Field operator()(std::string_view name, std::optional<std::vector<int>>& value, std::string_view help);
  Field operator()(std::string_view name, std::optional<std::vector<std::int64_t>>& value, std::string_view help);
  Field operator()(std::string_view name, std::optional<std::vector<double>>& value, std::string_view help);
  Field operator()(std::string_view name, std::optional<std::vector<std::string>>& value, std::string_view help);

  /// A type with TextTraits, or an optional of one, as text; the names of an enum are its choices.
  template <class V, class T = typename detail::Unwrapped<V>::type>
    requires requires { TextTraits<T>::format; }
  Field operator()(std::string_view name, V& value, std::string_view help) {
    const std::optional<T> now = value;
    detail::TextValue text;
    if (now) text.text = TextTraits<T>::format(*now);
    text.optional = detail::Unwrapped<V>::optional;
    text.store = [&value](const std::optional<std::string>& given) {
      std::optional<T> read = given ? TextTraits<T>::parse(*given) : std::nullopt;
      if (given && !read) return false;
      if constexpr (detail::Unwrapped<V>::optional) {
        value = std::move(read);
      } else {
        value = *std::move(read);
      }
      return true;
    };
    if constexpr (std::is_enum_v<T>) {
      text.names.assign(TextTraits<T>::names.begin(), TextTraits<T>::names.end());
    } else {
      text.expected = TextTraits<T>::expected;
    }
    return add_text(name, std::move(text), help);
  }

  /// A nested section.
  Field operator()(std::string_view name, SectionRef value, std::string_view help);

  /// A mapping with any keys, or one text, such as the name of a file that contains them; null: not set. A later source
  /// adds to the mapping of an earlier one. For the options of another program, whose names are unknown here.
  Field operator()(std::string_view name, ConfigTree& value, std::string_view help);

  /// A key, or a section of keys, whose feature is not available: refuses any value except the default. `key` must
  /// outlive the list.
  void reserved(const ReservedKey& key);

  /// A list of mappings; each mapping has the fields of S.
  template <Listed S>
  Field operator()(std::string_view name, std::vector<S>& value, std::string_view help) {
    using List = std::vector<S>;
    return list(name,
                {&value, [](const void* p) { return static_cast<const List*>(p)->size(); },
                 [](void* p, std::size_t i) -> SectionRef { return (*static_cast<List*>(p))[i]; },
                 [](void* p, std::size_t n) { static_cast<List*>(p)->assign(n, S()); },
                 [](void* p, const void* from) { *static_cast<List*>(p) = *static_cast<const List*>(from); },
                 &detail::OwnedSection::make<S>},
                help);
  }

  /// Mappings under arbitrary names, such as those of splits in `dataloader`; at most one such field per section. Help
  /// shows `placeholder` for the name.
  template <Listed S>
  Field others(std::string_view placeholder, std::map<std::string, S>& value, std::string_view help) {
    return map(placeholder,
               {&value,
                [](const void* p) {
                  std::vector<std::string> names;
                  for (const auto& entry : *static_cast<const std::map<std::string, S>*>(p)) {
                    names.push_back(entry.first);
                  }
                  return names;
                },
                [](void* p, const std::string& name) -> SectionRef {
                  return (*static_cast<std::map<std::string, S>*>(p))[name];
                },
                &detail::OwnedSection::make<S>},
               help);
  }

  /// Sets the heading in --help for the following top-level fields.
  void group(std::string_view heading);

  /// For the library's visitors (parsing, help, saving).
  const std::vector<std::unique_ptr<detail::FieldSpec>>& specs() const { return specs_; }

 private:
  detail::FieldSpec& add(std::string_view name, std::string_view help);
  Field list(std::string_view name, detail::SectionList value, std::string_view help);
  Field map(std::string_view placeholder, detail::SectionMap value, std::string_view help);
  Field add_text(std::string_view name, detail::TextValue value, std::string_view help);

  std::vector<std::unique_ptr<detail::FieldSpec>> specs_;
  std::string group_;
};

}  // namespace danling::inline v0
