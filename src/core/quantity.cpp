#include <danling/core/quantity.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include <danling/core/format.hpp>

namespace danling::inline v0 {
namespace {

constexpr double second = 1.0, minute = 60.0, hour = 3600.0, day = 86400.0;
constexpr std::array<std::pair<std::string_view, double>, 4> time_units = {
    {{"d", day}, {"h", hour}, {"m", minute}, {"s", second}}};

constexpr std::int64_t kibi = 1024;
constexpr std::array<std::pair<std::string_view, std::int64_t>, 5> binary_units = {
    {{"TiB", kibi* kibi* kibi* kibi}, {"GiB", kibi* kibi* kibi}, {"MiB", kibi* kibi}, {"KiB", kibi}, {"B", 1}}};
constexpr std::array<std::pair<std::string_view, double>, 8> other_units = {
    {{"T", 0x1p40}, {"G", 0x1p30}, {"M", 0x1p20}, {"K", 0x1p10}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}}};

// Removes a number without sign or exponent from the front of `text` and returns it.
std::optional<double> take_number(std::string_view& text) {
  double value = 0.0;
  if (text.empty() || (text.front() != '.' && (text.front() < '0' || text.front() > '9'))) {
    return std::nullopt;  // from_chars reads signs, inf and nan too
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc()) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::string_view take_letters(std::string_view& text) {
  std::size_t count = 0;
  while (count < text.size() && ((text[count] | 0x20) >= 'a' && (text[count] | 0x20) <= 'z')) {
    ++count;
  }
  const auto letters = text.substr(0, count);
  text.remove_prefix(count);
  return letters;
}

// Parses `d-hh`, `mm:ss`, `hh:mm:ss` and so on: whole numbers, all but the first below their limits.
std::optional<double> read_clock(std::string_view text) {
  const auto dash = text.find('-');
  double days = 0.0;
  if (dash != std::string_view::npos) {
    const auto number = take_number(text);
    if (!number || *number != std::floor(*number) || !text.starts_with('-')) {
      return std::nullopt;
    }
    days = *number;
    text.remove_prefix(1);
  }
  std::vector<double> parts;
  for (bool more = true; more;) {
    const auto number = take_number(text);
    if (!number || *number != std::floor(*number)) {
      return std::nullopt;
    }
    parts.push_back(*number);
    more = text.starts_with(':');
    text.remove_prefix(more ? 1 : 0);
  }
  const bool has_days = dash != std::string_view::npos;
  if (!text.empty() || parts.size() > 3 || (parts.size() < 2 && !has_days)) {
    return std::nullopt;
  }
  // After days the first part is hours; without them the last part is seconds.
  const double hours = has_days ? parts[0] : parts.size() == 3 ? parts[0] : 0.0;
  const std::size_t next = has_days || parts.size() == 3 ? 1 : 0;
  const double minutes = next < parts.size() ? parts[next] : 0.0;
  const double seconds = next + 1 < parts.size() ? parts[next + 1] : 0.0;
  if ((has_days && hours >= 24) || (next == 1 && minutes >= 60) || seconds >= 60) {
    return std::nullopt;
  }
  return days * day + hours * hour + minutes * minute + seconds;
}

// Parses `1h30m`: units in descending order, each at most once.
std::optional<double> read_units(std::string_view text) {
  double total = 0.0;
  double last = std::numeric_limits<double>::infinity();
  while (!text.empty()) {
    const auto number = take_number(text);
    const auto letters = take_letters(text);
    double unit = 0.0;
    for (const auto& [name, size] : time_units) {
      unit = letters == name ? size : unit;
    }
    if (!number || unit == 0.0 || unit >= last) {
      return std::nullopt;
    }
    total += *number * unit;
    last = unit;
  }
  return total;
}

}  // namespace

std::string TextTraits<Duration>::format(const Duration& value) {
  double left = value.seconds;
  if (left != std::floor(left) || left <= 0 || left > 1e15) {
    std::array<char, 400> text{};  // without an exponent, which parse() does not read
    const auto end = std::to_chars(text.data(), text.data() + text.size(), left, std::chars_format::fixed).ptr;
    return std::string(text.data(), end) + "s";
  }
  std::string out;
  for (const auto& [name, size] : time_units) {
    const double count = std::floor(left / size);
    if (count > 0) {
      out += concat(static_cast<std::int64_t>(count), name);
      left -= count * size;
    }
  }
  return out;
}

std::optional<Duration> TextTraits<Duration>::parse(const std::string& text) {
  std::string_view rest = text;
  std::optional<double> seconds = take_number(rest);
  if (!seconds || !rest.empty()) {
    const bool clock = text.find_first_of(":-") != std::string::npos;
    seconds = text.empty() ? std::nullopt : clock ? read_clock(text) : read_units(text);
  }
  return seconds && std::isfinite(*seconds) ? std::optional(Duration{*seconds}) : std::nullopt;
}

std::string TextTraits<MemorySize>::format(const MemorySize& value) {
  for (const auto& [name, size] : binary_units) {
    if (value.bytes != 0 && value.bytes % size == 0) {
      return concat(value.bytes / size, name);
    }
  }
  return "0B";
}

std::optional<MemorySize> TextTraits<MemorySize>::parse(const std::string& text) {
  std::string_view rest = text;
  const auto number = take_number(rest);
  while (rest.starts_with(' ')) {
    rest.remove_prefix(1);
  }
  double unit = rest.empty() ? 1.0 : 0.0;
  for (const auto& [name, size] : binary_units) {
    unit = rest == name ? static_cast<double>(size) : unit;
  }
  for (const auto& [name, size] : other_units) {
    unit = rest == name ? size : unit;
  }
  if (!number || unit == 0.0 || *number * unit >= 0x1p62) {
    return std::nullopt;
  }
  return MemorySize{static_cast<std::int64_t>(std::llround(*number * unit))};
}

}  // namespace danling::inline v0
