// Restores an open file that someone removed, with its whole content.
#pragma once

#include <filesystem>

namespace danling::inline v0::detail {

/// If `path` was removed, recreates it with the content of the open, readable `file`, and points `file` to it for
/// appending. Returns errno on failure, or 0; the directory must exist.
int restore_removed(int file, const std::filesystem::path& path) noexcept;

}  // namespace danling::inline v0::detail
