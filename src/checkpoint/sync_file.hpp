// Syncs files to disk that other code writes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

/// No effect if the file is missing. @throws CheckpointError
inline void sync_file(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0 && errno == ENOENT) {
    return;
  }
  const int error = descriptor < 0 || ::fdatasync(descriptor) != 0 ? errno : 0;
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  check<CheckpointError>(error == 0, "checkpoint.write", "expected to sync ", quote(path.string()), ", got errno ",
                         error, " (", std::generic_category().message(error), ")");
}

}  // namespace danling::inline v0
