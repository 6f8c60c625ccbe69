// How files are called before they have their name.
#pragma once

#include <filesystem>
#include <string_view>

namespace danling::inline v0::formats {

/// Between the name-to-be and what makes the temporary unique.
inline constexpr std::string_view temporary_mark = ".tmp-";

inline std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace danling::inline v0::formats
