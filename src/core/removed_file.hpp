// Restores a file that was removed while it was open, with its whole content.
#pragma once

#include <filesystem>

namespace danling::inline v0::detail {

/// If `path` was removed, recreates it with the content of the open, readable `file`, and makes `file` refer to it for
/// appending. Returns 0, or errno on failure; the directory must exist.
int restore_removed(int file, const std::filesystem::path& path) noexcept;

}  // namespace danling::inline v0::detail
