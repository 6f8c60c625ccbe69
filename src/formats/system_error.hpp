// Throws checkpoint errors with the system's reason.
#pragma once

#include <filesystem>
#include <string_view>
#include <system_error>

#include <danling/core/error.hpp>

namespace danling::inline v0::formats {

/// Throws `[where] expected to <what> '<path>', got errno 28 (No space left on device)`.
[[noreturn]] inline void fail_system(std::string_view where, std::string_view what, const std::filesystem::path& path,
                                     int error) {
  fail<CheckpointError>(where, "expected to ", what, " ", quote(path.string()), ", got errno ", error, " (",
                        std::generic_category().message(error), ")");
}

}  // namespace danling::inline v0::formats
