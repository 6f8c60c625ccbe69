// Quantities with units: spans of time and sizes of memory, as configs state them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <danling/core/text_traits.hpp>

namespace danling::inline v0 {

/// A span of time: `5400` (seconds), `90m`, `1h30m`, `1.5h`, `2d`, and Slurm's `mm:ss`, `hh:mm:ss`, `d-hh`, `d-hh:mm`,
/// `d-hh:mm:ss`.
struct Duration {
  double seconds = 0.0;
  bool operator==(const Duration&) const = default;
};

/// A size of memory: `1048576` (bytes), `512MiB`, `1.5G`; the letters K, M, G, T alone are binary units, as KiB is.
struct MemorySize {
  std::int64_t bytes = 0;
  bool operator==(const MemorySize&) const = default;
};

template <>
struct TextTraits<Duration> {
  static constexpr std::string_view expected = "a span of time such as 5400 (seconds), 90m, 1h30m or 1-12:00:00";
  /// `1d12h`, `1h30m`, `45s`, `0.5s`: reads back as the same span.
  static std::string format(const Duration& value);
  static std::optional<Duration> parse(const std::string& text);
};

template <>
struct TextTraits<MemorySize> {
  static constexpr std::string_view expected = "a size of memory such as 512MiB, 4G or 1048576 (bytes)";
  /// `4GiB`, `1536MiB`, `1000B`: exact, in the largest unit that divides it.
  static std::string format(const MemorySize& value);
  static std::optional<MemorySize> parse(const std::string& text);
};

/// For people: `3.42 GiB`.
std::string format_size(std::int64_t bytes);

}  // namespace danling::inline v0
