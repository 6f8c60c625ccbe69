// The version of these headers.
#pragma once

namespace danling::inline v0 {

inline constexpr int version_major = 0;
inline constexpr int version_minor = 1;
inline constexpr int version_patch = 0;
inline constexpr const char* version = "0.1.0";

}  // namespace danling::inline v0
