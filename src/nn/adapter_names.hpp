// Names of parameters inside of modules.
#pragma once

#include <string>
#include <string_view>

#include <danling/core/format.hpp>

namespace danling::inline v0::nn {

/// `fc.weight` of module `fc`; of the whole model, whose name is empty, `weight`.
inline std::string name_inside(const std::string& module, std::string_view name) {
  return module.empty() ? std::string(name) : concat(module, ".", name);
}

}  // namespace danling::inline v0::nn
