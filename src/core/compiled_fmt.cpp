// The one source that compiles fmt.
#ifndef FMT_HEADER_ONLY
#define FMT_HEADER_ONLY
#endif
#include <fmt/format.h>

#include <core/fmt.hpp>

namespace danling::inline v0 {

std::string detail::format_arguments(fmt::string_view pattern, fmt::format_args arguments) {
  return fmt::vformat(pattern, arguments);
}

std::string detail::group_digits(std::uint64_t number) { return fmt::format("{}", fmt::group_digits(number)); }

}  // namespace danling::inline v0
