// Names of temporary files.
#pragma once

#include <filesystem>
#include <string_view>

namespace danling::inline v0::formats {

/// Separates the final name from the unique suffix of a temporary name.
inline constexpr std::string_view temporary_mark = ".tmp-";

inline std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace danling::inline v0::formats
