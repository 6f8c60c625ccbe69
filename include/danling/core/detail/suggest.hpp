// Suggests the nearest known name for a misspelt name, for error messages.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace danling::inline v0::detail {

/// Returns the number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate nearest to `name`, or nullopt if none is near enough.
std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates);

/// Returns `; did you mean 'x'?` with the nearest candidate, or an empty string.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace danling::inline v0::detail

#ifdef DANLING_SOURCES  // the library's own files name it without `detail`
namespace danling::inline v0 {
using detail::did_you_mean;
}  // namespace danling::inline v0
#endif
