// Quantities with units in configs: durations and memory sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <danling/core/text_traits.hpp>

namespace danling::inline v0 {

/// A duration. Accepted texts: `5400` (seconds; minutes in Slurm), `90m`, `1h30m`, `1.5h`, `2d`, and Slurm's `mm:ss`,
/// `hh:mm:ss`, `d-hh`, `d-hh:mm`, `d-hh:mm:ss`.
struct Duration {
  double seconds = 0.0;
  bool operator==(const Duration&) const = default;
};

/// A memory size. Accepted texts: `1048576` (bytes), `512MiB`, `512 MiB`, `1.5G`. K, M, G and T are binary like KiB;
/// KB, MB, GB and TB are decimal. Rounded to bytes.
struct MemorySize {
  std::int64_t bytes = 0;
  bool operator==(const MemorySize&) const = default;
};

template <>
struct TextTraits<Duration> {
  static constexpr std::string_view expected = "a span of time such as 5400 (seconds), 90m, 1h30m or 1-12:00:00";
  /// Returns a text such as `1d12h`, `1h30m`, `45s` or `0.5s`, which `parse` reads back exactly unless it is negative.
  static std::string format(const Duration& value);
  static std::optional<Duration> parse(const std::string& text);
};

template <>
struct TextTraits<MemorySize> {
  static constexpr std::string_view expected = "a size of memory such as 512MiB, 4G or 1048576 (bytes)";
  /// Returns a text such as `4GiB`, `1536MiB` or `1000B`: exact, in the largest unit that divides the size.
  static std::string format(const MemorySize& value);
  static std::optional<MemorySize> parse(const std::string& text);
};

}  // namespace danling::inline v0
