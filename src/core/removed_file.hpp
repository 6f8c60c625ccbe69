// A file that someone removed while it is open: made anew, whole.
#pragma once

#include <filesystem>

namespace danling::inline v0::detail {

/// Where `path` is not there any more, makes it anew with all that the open `file`, which can be read, still holds, and
/// lets `file` go on there, appending. Returns errno of a failure, or 0; its folder must be there.
int restore_removed(int file, const std::filesystem::path& path) noexcept;

}  // namespace danling::inline v0::detail
