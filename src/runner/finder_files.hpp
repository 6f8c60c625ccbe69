// Files of the finders' plots.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {

/// Called before the work begins. @throws ConfigError when the directory of the plot is missing
inline void check_picture(const std::string& file, std::string_view key, std::string_view operation) {
  if (file.empty()) {
    return;
  }
  const auto folder = std::filesystem::absolute(file).parent_path();
  std::error_code missing;
  check<ConfigError>(std::filesystem::is_directory(folder, missing), operation,
                     "expected a file in an existing directory for ", key, ", got ", quote(file));
}

}  // namespace danling::inline v0::detail
