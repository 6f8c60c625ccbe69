// Parses numbers and words; accepts only whole texts.
#include <config/number.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

namespace danling::inline v0::detail {
namespace {

template <class T>
std::optional<T> whole(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-' && text[1] != '+') {
    text.remove_prefix(1);
  }
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? std::optional<T>(value)
                                                                                   : std::nullopt;
}

template <class T>
std::optional<T> real(std::string_view text) {
  std::string_view digits = text;
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    digits.remove_prefix(1);
  }
  for (const std::string_view word : {"inf", ".inf", ".Inf", ".INF", "Infinity"}) {
    if (digits == word) {
      const T infinity = std::numeric_limits<T>::infinity();
      return negative ? -infinity : infinity;
    }
  }
  for (const std::string_view word : {"nan", ".nan", ".NaN", ".NAN", "NaN"}) {
    if (text == word) {
      return std::numeric_limits<T>::quiet_NaN();
    }
  }
  if (digits.empty() || !((digits[0] >= '0' && digits[0] <= '9') || digits[0] == '.')) {
    return std::nullopt;
  }
  return whole<T>(text);
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const auto word : words) {
    std::string capital(word);
    std::string upper(word);
    capital[0] = static_cast<char>(capital[0] - 'a' + 'A');
    std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) { return static_cast<char>(c - 'a' + 'A'); });
    if (text == word || text == capital || text == upper) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) { return whole<std::int64_t>(text); }
std::optional<double> parse_number(std::string_view text) { return real<double>(text); }
std::optional<float> parse_float(std::string_view text) { return real<float>(text); }

std::optional<bool> parse_bool(std::string_view text) {
  if (is_one_of(text, {"true", "yes", "on"})) return true;
  if (is_one_of(text, {"false", "no", "off"})) return false;
  return std::nullopt;
}

bool is_null_word(std::string_view text) { return text.empty() || text == "~" || is_one_of(text, {"null"}); }

bool reads_as_other(std::string_view text) {
  // A text that begins with a letter is a string, except for these words. Others may be numbers of any base, times or
  // dates.
  return is_null_word(text) || text == "NaN" ||
         !((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z') || text[0] == '_' ||
           text[0] == '/') ||
         is_one_of(text, {"true", "false", "yes", "no", "on", "off", "y", "n", "none", "inf", "nan", "infinity"});
}

double float_as_double(float value) {
  if (!std::isfinite(value)) {
    return static_cast<double>(value);
  }
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  double out = 0;
  std::from_chars(buffer.data(), end, out);
  return out;
}

}  // namespace danling::inline v0::detail
