// Checks the patterns of log lines.
#include <algorithm>

#include <danling/core/error.hpp>
#include <danling/telemetry/log_options.hpp>

namespace danling::inline v0 {

void check_log_pattern(std::string_view pattern) {
  static constexpr std::string_view where = "logger.pattern";
  static constexpr std::string_view digits = "0123456789";
  static constexpr std::string_view flags = "+vnlLtPaAbhBcCYDxmdHIMSefFEprRTXzuioO%";
  static constexpr std::string_view without_effect = "@sg#!^$";  // places in sources, and colours
  bool has_text = false;
  for (std::size_t at = pattern.find('%'); at != std::string_view::npos; at = pattern.find('%', at)) {
    const std::size_t begin = at++;
    at += at < pattern.size() && (pattern[at] == '-' || pattern[at] == '=') ? 1 : 0;
    const std::size_t width = at;
    at = std::min(pattern.find_first_not_of(digits, at), pattern.size());
    const bool cuts = at > width && at + 1 < pattern.size() && pattern[at] == '!';
    at += cuts ? 1 : 0;
    const char flag = at < pattern.size() ? pattern[at] : '\0';
    at = std::min(at + 1, pattern.size());
    const std::string_view part = pattern.substr(begin, at - begin);
    check<ConfigError>(without_effect.find(flag) == std::string_view::npos, where,
                       "expected flags of spdlog that a log file has, got ", quote(part), " in ", quote(pattern));
    check<ConfigError>(flags.find(flag) != std::string_view::npos, where, "expected flags of spdlog, got ", quote(part),
                       " in ", quote(pattern));
    has_text = has_text || flag == 'v' || flag == '+';
  }
  check<ConfigError>(has_text, where, "expected a pattern with %v, the text of a line, got ", quote(pattern));
}

}  // namespace danling::inline v0
