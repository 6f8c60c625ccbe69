// Formats text by fmt, for modules without LibTorch, which has another version of fmt.
#pragma once

#include <cstdint>
#include <string>

// compiled_fmt.cpp alone compiles the header-only fmt: other sources take 0.2 s for it instead of 3 s.
#undef FMT_HEADER_ONLY
#include <fmt/core.h>

namespace danling::inline v0::detail {

std::string format_arguments(fmt::string_view pattern, fmt::format_args arguments);

/// Returns the text of `fmt::format`; the compiler checks the pattern.
template <class... Args>
std::string format_text(fmt::format_string<Args...> pattern, const Args&... args) {
  return format_arguments(pattern, fmt::make_format_args(args...));
}

/// Returns a text such as `1,234,567`.
std::string group_digits(std::uint64_t number);

}  // namespace danling::inline v0::detail

#ifdef DANLING_SOURCES
namespace danling::inline v0 {
using detail::format_text;
}
#endif
