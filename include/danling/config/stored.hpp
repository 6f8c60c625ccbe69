// StoredConfig: a copy of a whole config of any derived type, so that no derived fields are lost.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <typeinfo>

#include <danling/config/config.hpp>
#include <danling/core/error.hpp>

namespace danling::inline v0 {

namespace detail {
/// Returns the name of a type as in source code.
std::string readable_name(const std::type_info& type);
}  // namespace detail

/// Stores a copy of a user's config and a default-constructed one for comparison, both accessed through `Base`. Copies
/// share the stored config.
template <std::derived_from<Config> Base>
class StoredConfig {
 public:
  /// @throws ConfigError if `config` refers to the base of a derived config, whose fields would be lost
  template <std::derived_from<Base> C>
  explicit StoredConfig(const C& config)
      : config_((refuse_slicing(config), std::make_shared<C>(config))),
        defaults_(std::make_shared<const C>()),
        make_([]() -> std::unique_ptr<Base> { return std::make_unique<C>(); }) {
    static_assert(std::default_initializable<C> && std::copy_constructible<C>,
                  "danling: a config can be copied, and made without arguments: it is compared with its defaults, and "
                  "read from files. Give it a constructor without arguments, or defaults to all of its parameters");
  }

  Base& get() const { return *config_; }
  const Base& defaults() const { return *defaults_; }
  /// Makes a config of the same type with the defaults, for example to read a saved config into.
  std::unique_ptr<Base> make() const { return make_(); }

  /// Returns the config as its original type. @throws ConfigError for another type
  template <std::derived_from<Base> C>
  C& as() const {
    C* found = dynamic_cast<C*>(config_.get());
    if (found == nullptr) {
      const Base& held = *config_;
      detail::fail<ConfigError>("config.as", "expected the type of the config, ", detail::readable_name(typeid(held)),
                                ", got ", detail::readable_name(typeid(C)));
    }
    return *found;
  }

 private:
  template <class C>
  static void refuse_slicing(const C& config) {
    if (typeid(config) != typeid(C)) {
      detail::fail<ConfigError>("config.store", "expected the config by its own type, ",
                                detail::readable_name(typeid(config)), ", got a reference to its base ",
                                detail::readable_name(typeid(C)), ", which would lose its fields");
    }
  }

  std::shared_ptr<Base> config_;
  std::shared_ptr<const Base> defaults_;
  std::unique_ptr<Base> (*make_)();
};

}  // namespace danling::inline v0
