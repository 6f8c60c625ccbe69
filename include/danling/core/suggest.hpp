// The nearest known name to a misspelt one, for error messages.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace danling::inline v0 {

/// Number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `name`, or nothing when none is near enough.
std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates);

/// `; did you mean 'x'?` for the nearest candidate, or an empty string.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace danling::inline v0
