// Registry of factories by name, for config values such as `optim.type: adamw`.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>

namespace danling::inline v0 {

/// Maps names to factories. Lookup ignores case; the error for an unknown name lists the known names.
/// Registration is not synchronised: finish it before several threads read.
template <class Signature>
class Registry {
 public:
  using Factory = std::function<Signature>;

  /// `what` names the kind of entry in messages: "optimizer", "scheduler".
  explicit Registry(std::string what) : what_(std::move(what)) {}

  /// Adds a factory. @throws ConfigError if the name is taken
  void add(std::string_view name, Factory factory) {
    if (!entries_.emplace(lower(name), std::move(factory)).second) {
      detail::fail<ConfigError>(what_ + ".register", "expected a new name, got ", detail::quote(name),
                                ", which is taken");
    }
  }

  /// Returns true if the name has a factory.
  bool contains(std::string_view name) const { return entries_.find(lower(name)) != entries_.end(); }

  /// Returns all names in lower case, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : entries_) {
      out.push_back(entry.first);
    }
    return out;
  }

  /// Returns the factory of `name`. @throws ConfigError, which lists the known names
  const Factory& at(std::string_view name) const {
    const auto found = entries_.find(lower(name));
    if (found == entries_.end()) {
      const auto known = names();
      detail::fail<ConfigError>(what_ + ".build", "expected one of ", detail::join(known), ", got ",
                                detail::quote(name), detail::did_you_mean(lower(name), known));
    }
    return found->second;
  }

 private:
  static std::string lower(std::string_view name) {
    std::string out(name);
    for (char& c : out) {
      c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);  // tolower has no 'i' for 'I' in Turkish
    }
    return out;
  }

  std::string what_;
  std::map<std::string, Factory> entries_;
};

}  // namespace danling::inline v0
