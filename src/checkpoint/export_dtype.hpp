// Names of floating-point dtypes in `checkpoint.export_dtype`.
#pragma once

#include <string>

#include <c10/core/ScalarType.h>

namespace danling::inline v0 {

/// @throws ConfigError that lists the names
c10::ScalarType resolve_export_dtype(const std::string& name);

}  // namespace danling::inline v0
