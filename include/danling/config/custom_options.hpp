// Options that a program adds to a section of the library: user-defined structs, listed after the section's fields.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

namespace danling::inline v0 {

class Fields;

namespace detail {
/// A type-erased struct of options.
struct CustomOptionsType {
  std::type_index id;
  /// Copies a struct; for null makes one with the defaults.
  std::shared_ptr<void> (*copy)(const void*);
  void (*list)(void*, Fields&);

  template <class T>
  static CustomOptionsType of() {
    return {typeid(T),
            [](const void* from) -> std::shared_ptr<void> {
              return from == nullptr ? std::make_shared<T>() : std::make_shared<T>(*static_cast<const T*>(from));
            },
            [](void* options, Fields& f) { static_cast<T*>(options)->fields(f); }};
  }
};
}  // namespace detail

/// The structs that programs added to one kind of section. Not synchronised: add them before any config is read.
class CustomOptionTypes {
 public:
  /// Adds the options of T, which has `void fields(Fields& f)`; a repeated call changes nothing. `known` lists the
  /// existing keys of the section. All fields must be std::optional: groups inherit an unset option, and other types
  /// refuse a set one. @throws ConfigError for another field, and for a key that is in `known` or in another struct
  template <class T>
  void add(std::string_view where, const std::vector<std::string>& known) {
    add(detail::CustomOptionsType::of<T>(), where, known);
  }

  const std::vector<detail::CustomOptionsType>& all() const { return types_; }

 private:
  void add(const detail::CustomOptionsType& type, std::string_view where, const std::vector<std::string>& known);
  std::vector<detail::CustomOptionsType> types_;
};

/// The values of added options in one section. Copies are independent.
class CustomOptions {
 public:
  CustomOptions() = default;
  CustomOptions(const CustomOptions& other);
  CustomOptions(CustomOptions&&) noexcept = default;
  CustomOptions& operator=(const CustomOptions& other);
  CustomOptions& operator=(CustomOptions&&) noexcept = default;
  ~CustomOptions() = default;

  /// Returns the options of type T; adds the defaults if there are none. A const object returns the defaults.
  template <class T>
  T& get() {
    return *static_cast<T*>(get_or_make(detail::CustomOptionsType::of<T>()));
  }
  template <class T>
  const T& get() const {
    static const T unset = {};
    const void* found = find(typeid(T));
    return found == nullptr ? unset : *static_cast<const T*>(found);
  }

  /// Lists the fields of every struct in `types`.
  void fields(Fields& f, const CustomOptionTypes& types);

 private:
  struct Entry {
    detail::CustomOptionsType type;
    std::shared_ptr<void> value;
  };
  const void* find(std::type_index id) const;
  void* get_or_make(const detail::CustomOptionsType& type);
  std::vector<Entry> entries_;
};

}  // namespace danling::inline v0
