#include "verify_resume_layouts.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::detail::check;

constexpr auto layouts_where = "verify-resume";

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t from = 0; (from = text.find_first_not_of(' ', from)) != std::string_view::npos;) {
    const auto end = std::min(text.find(' ', from), text.size());
    out.emplace_back(text.substr(from, end - from));
    from = end;
  }
  return out;
}

}  // namespace

std::string Layout::text() const {
  return arguments.empty() ? danling::to_text(std::int64_t{processes})
                           : danling::detail::concat(processes, " (", danling::detail::join(arguments, " "), ")");
}

std::vector<Layout> parse_layouts(std::string_view text) {
  std::vector<Layout> out;
  for (std::size_t from = 0; from <= text.size();) {
    const auto end = std::min(text.find(';', from), text.size());
    const auto one = text.substr(from, end - from);
    const auto colon = one.find(':');
    const int number = colon == std::string_view::npos ? 0 : whole_number<int>(one.substr(0, colon)).value_or(0);
    check<ConfigError>(number >= 1 && number <= 1024, layouts_where,
                       "expected --layouts of the form 'PROCESSES:ARGUMENTS;PROCESSES:ARGUMENTS', with 1 to 1024 "
                       "processes, got ",
                       danling::detail::quote(one));
    Layout layout{number, words_of(one.substr(colon + 1))};
    for (const auto& word : layout.arguments) {
      for (const std::string option : {"--workspace_root", "--auto_resume", "--resume", "--seed"}) {
        check<ConfigError>(word != option && !word.starts_with(option + "="), layouts_where, "expected no ", option,
                           " in --layouts, got ", danling::detail::quote(one));
      }
    }
    out.push_back(std::move(layout));
    from = end + 1;
  }
  return out;
}

std::vector<std::string> keys_of(const std::vector<Layout>& layouts) {
  std::vector<std::string> out;
  for (const auto& layout : layouts) {
    for (const auto& word : layout.arguments) {
      if (word.starts_with("--")) {
        const auto key = word.substr(2, word.find('=') == std::string::npos ? word.size() : word.find('=') - 2);
        if (std::find(out.begin(), out.end(), key) == out.end()) {
          out.push_back(key);
        }
      }
    }
  }
  return out;
}

bool Tolerance::accepts(double a, double b, double largest) const {
  if (a == b || (std::isnan(a) && std::isnan(b))) {
    return true;
  }
  return std::isfinite(a) && std::isfinite(b) &&
         std::abs(a - b) <= relative * std::max({std::abs(a), std::abs(b), largest}) + floor;
}

Tolerance parse_tolerance(std::string_view text) {
  const auto comma = text.find(',');
  const auto relative = whole_number<double>(text.substr(0, comma));
  const auto floor = comma == std::string_view::npos ? (relative ? std::optional(*relative * *relative) : std::nullopt)
                                                     : whole_number<double>(text.substr(comma + 1));
  check<ConfigError>(relative && floor && *relative > 0 && *relative < 1 && *floor >= 0 && *floor < 1, layouts_where,
                     "expected --tolerance with a number above 0 and below 1, or two separated by a comma (relative, "
                     "absolute), got ",
                     danling::detail::quote(text));
  return {*relative, *floor};
}

}  // namespace danling_command
