// Names of parameters inside modules.
#pragma once

#include <string>
#include <string_view>

#include <danling/core/format.hpp>

namespace danling::inline v0::nn {

/// `fc.weight` for module `fc`; `weight` for the whole model, whose name is empty.
inline std::string name_inside(const std::string& module, std::string_view name) {
  return module.empty() ? std::string(name) : concat(module, ".", name);
}

}  // namespace danling::inline v0::nn
