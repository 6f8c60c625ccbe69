// Shell brace patterns: `shard-{000..099}.tar`, `{train,extra}.tar`.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/data/datasets/tar_records.hpp>

namespace danling::inline v0::data {

namespace {

constexpr std::size_t max_names = 10'000'000;

[[noreturn]] void refuse_pattern(std::string_view pattern, std::string_view why) {
  fail<ConfigError>("data.tar_shards", "expected a pattern such as 'shard-{000..099}.tar', got ", quote(pattern), ": ",
                    why);
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool digits = !text.empty() && text[0] >= '0' && text[0] <= '9';
  return digits && error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// Returns the alternatives of one pair of braces.
std::vector<std::string> alternatives(std::string_view inside, std::string_view pattern) {
  std::vector<std::string> out;
  const std::size_t dots = inside.find("..");
  if (dots != std::string_view::npos) {
    const std::string_view first = inside.substr(0, dots);
    const std::string_view last = inside.substr(dots + 2);
    const auto from = whole_number(first);
    const auto to = whole_number(last);
    if (!from || !to || *from > *to) {
      refuse_pattern(pattern, "a range is two whole numbers, the smaller one first");
    }
    if (static_cast<std::uint64_t>(*to - *from) >= max_names) {
      refuse_pattern(pattern, "it expands to more than 10000000 names");
    }
    const bool padded = first.size() > 1 && first[0] == '0';
    const std::size_t width = padded || (last.size() > 1 && last[0] == '0') ? std::max(first.size(), last.size()) : 0;
    for (std::int64_t number = *from; number <= *to; ++number) {
      std::string digits = std::to_string(number);
      out.push_back(std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits);
    }
    return out;
  }
  if (inside.find(',') == std::string_view::npos) {
    refuse_pattern(pattern, "braces hold a range or a list");
  }
  for (std::size_t begin = 0; begin <= inside.size();) {
    const std::size_t comma = std::min(inside.find(',', begin), inside.size());
    out.emplace_back(inside.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return out;
}

}  // namespace

std::vector<std::string> expand_braces(std::string_view pattern) {
  std::vector<std::string> out = {std::string()};
  for (std::string_view rest = pattern; !rest.empty();) {
    const std::size_t open = std::min(rest.find_first_of("{}"), rest.size());
    for (std::string& name : out) {
      name += rest.substr(0, open);
    }
    rest.remove_prefix(open);
    if (rest.empty()) {
      break;
    }
    const std::size_t close = rest.find_first_of("{}", 1);
    if (rest[0] == '}' || close == std::string_view::npos || rest[close] == '{') {
      refuse_pattern(pattern, "each '{' needs a '}', and braces cannot be nested");
    }
    const std::vector<std::string> parts = alternatives(rest.substr(1, close - 1), pattern);
    if (out.size() > max_names / parts.size()) {
      refuse_pattern(pattern, "it expands to more than 10000000 names");
    }
    std::vector<std::string> longer;
    longer.reserve(out.size() * parts.size());
    for (const std::string& name : out) {
      for (const std::string& part : parts) {
        longer.push_back(name + part);
      }
    }
    out = std::move(longer);
    rest.remove_prefix(close + 1);
  }
  return out;
}

}  // namespace danling::inline v0::data
