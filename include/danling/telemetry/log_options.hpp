// Levels of log lines, and the pattern of those in a file.
#pragma once

#include <array>
#include <string_view>

namespace danling::inline v0 {

/// `off` is no level of a line: as the lowest level that a Logger writes, it disables all lines.
enum class LogLevel { debug, info, warning, error, off };

constexpr auto names_of(LogLevel) {
  return std::to_array<std::string_view>({"debug", "info", "warning", "error", "off"});
}

/// `2026-12-31 23:59:59.123 info     text`
inline constexpr std::string_view default_log_pattern = "%Y-%m-%d %H:%M:%S.%e %-7l  %v";

/// Checks a pattern in spdlog's syntax, which has the text `%v`. spdlog itself writes unknown flags as they are.
/// @throws ConfigError for a flag that spdlog does not know or that has no effect in a log file, and for a pattern
/// without the text
void check_log_pattern(std::string_view pattern);

}  // namespace danling::inline v0
