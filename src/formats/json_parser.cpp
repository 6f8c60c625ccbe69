#include <formats/json_parser.hpp>

#include <locale.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <system_error>
#include <utility>

#include <danling/core/error.hpp>

#include <formats/decimal.hpp>
#include <formats/utf8.hpp>

namespace danling::inline v0::formats {

void fail_json(const JsonFault& fault, std::string_view source) {
  fail<DataError>("data.json", fault.what, " (", source,
                  fault.column == 0 ? std::string() : concat(", column ", fault.column), ")");
}

void JsonParser::refuse(const char* at, std::string what) const {
  throw JsonFault{std::move(what), static_cast<std::size_t>(at - begin_) + 1};
}

void JsonParser::unexpected(std::string_view wanted) const {
  if (at_ == end_) {
    refuse(at_, concat("expected JSON, got a text that ends where ", wanted, " belongs"));
  }
  // The message quotes one word.
  const char* to = at_ + 1;
  while (to < end_ && to - at_ < 20 && static_cast<unsigned char>(*to) > ' ' && *to != ',' && *to != ']' &&
         *to != '}') {
    ++to;
  }
  refuse(at_, concat("expected JSON, got a ", quote(std::string_view(at_, static_cast<std::size_t>(to - at_))),
                     " where ", wanted, " belongs"));
}

void JsonParser::refuse_twice(std::string_view key) {
  throw JsonFault{concat("expected each key once, got ", quote(key.substr(0, 60)), " twice"), 0};
}

void JsonParser::refuse_depth() { throw JsonFault{"expected at most 256 levels of nesting, got more", 0}; }

void JsonParser::word(std::string_view wanted) {
  if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(wanted)) {
    unexpected("a value");
  }
  at_ += wanted.size();
}

double JsonParser::not_finite() {
  const bool negative = *at_ == '-';
  const std::string_view rest(at_ + (negative ? 1 : 0), static_cast<std::size_t>(end_ - at_) - (negative ? 1 : 0));
  const std::string_view name = !negative && rest.starts_with("NaN") ? "NaN" : "Infinity";
  if (!rest.starts_with(name)) {
    unexpected("a value");
  }
  if (!allow_nan_) {
    refuse(at_, concat("expected JSON, got a number that JSON does not have: ", negative ? "-" : "", name,
                       "; the option allow_nan reads what Python writes"));
  }
  at_ += name.size() + (negative ? 1 : 0);
  const double infinity = std::numeric_limits<double>::infinity();
  return name == "NaN" ? std::numeric_limits<double>::quiet_NaN() : negative ? -infinity : infinity;
}

bool JsonParser::other_number(std::int64_t& integer, double& number) {
  const char* at = at_;
  const char* const begin = at_;
  at += at < end_ && *at == '-' ? 1 : 0;
  if (at > begin && at < end_ && *at == 'I') {
    number = not_finite();
    return false;
  }
  if (at == end_ || !is_digit(*at)) {
    unexpected("a value");
  }
  const auto skip_digits = [&] {
    const char* const first = at;
    while (at < end_ && is_digit(*at)) {
      ++at;
    }
    return at > first;
  };
  if (*at == '0') {
    ++at;
  } else {
    skip_digits();
  }
  bool is_integer = true;
  if (at < end_ && *at == '.') {
    is_integer = false;
    ++at;
    if (!skip_digits()) {
      at_ = at;
      unexpected("a digit");
    }
  }
  if (at < end_ && (*at == 'e' || *at == 'E')) {
    is_integer = false;
    ++at;
    at += at < end_ && (*at == '+' || *at == '-') ? 1 : 0;
    if (!skip_digits()) {
      at_ = at;
      unexpected("a digit");
    }
  }
  at_ = at;
  if (!is_integer) {
    number = parse_double(begin, at);
    return false;
  }
  if (std::from_chars(begin, at, integer).ec != std::errc()) {
    throw JsonFault{concat("expected integers that int64 holds, got ",
                           std::string_view(begin, static_cast<std::size_t>(at - begin)).substr(0, 60)),
                    0};
  }
  return true;
}

double JsonParser::parse_double(const char* begin, const char* end) const {
  double value = 0;
  if (simple_decimal(begin, end, value) || std::from_chars(begin, end, value).ec == std::errc()) {
    return value;
  }
  // from_chars does not distinguish overflow from underflow; strtod rounds on underflow.
  static const locale_t c_locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  const std::string text(begin, end);
  value = ::strtod_l(text.c_str(), nullptr, c_locale);
  if (!std::isfinite(value)) {
    refuse(begin, concat("expected JSON, got a number that float64 does not hold: ", text.substr(0, 60)));
  }
  return value;
}

JsonParser::Text JsonParser::special_string(const char* begin) {
  const char* copied = begin;
  bool changed = false;
  const auto flush = [&] {
    if (!changed) {
      unescaped_.clear();
      changed = true;
    }
    unescaped_.append(copied, at_);
  };
  for (;;) {
    if (at_ == end_) {
      refuse(at_, "expected JSON, got a text that ends inside of a string");
    }
    const char c = *at_;
    if (c == '"') {
      break;
    }
    if (static_cast<signed char>(c) < 0) {
      const std::string_view rest(at_, static_cast<std::size_t>(end_ - at_));
      const std::size_t length = utf8_sequence(rest);
      if (length == 0) {
        refuse(at_, concat("expected JSON, got a byte that is not UTF-8: ", hex_byte(rest.front())));
      }
      at_ += length;
      if (at_ < end_ && static_cast<signed char>(*at_) >= 0) {
        at_ = find_special(at_, end_);
      }
      continue;
    }
    if (c != '\\') {
      refuse(at_,
             concat("expected JSON, got a control character inside of a string: ", quote(std::string_view(at_, 1))));
    }
    flush();
    escape();
    copied = at_;
    at_ = find_special(at_, end_);
  }
  const std::string_view plain(begin, static_cast<std::size_t>(at_ - begin));
  if (changed) {
    flush();
  }
  ++at_;
  return changed ? Text{unescaped_, false} : Text{plain, true};
}

/// Appends the character of the escape sequence at `at_`.
void JsonParser::escape() {
  static constexpr std::string_view names = "\"\\/bfnrt";
  static constexpr std::string_view values = "\"\\/\b\f\n\r\t";
  const char* const begin = at_++;
  const std::size_t which = at_ == end_ ? names.npos : names.find(*at_);
  if (which != names.npos) {
    unescaped_ += values[which];
    ++at_;
    return;
  }
  if (at_ == end_ || *at_ != 'u') {
    refuse(begin, "expected JSON, got a '\\' without a character to escape");
  }
  ++at_;
  std::uint32_t code = hex();
  if (code >= 0xd800 && code < 0xe000) {
    const bool pair = code < 0xdc00 && end_ - at_ >= 6 && at_[0] == '\\' && at_[1] == 'u';
    at_ += pair ? 2 : 0;
    const std::uint32_t low = pair ? hex() : 0;
    if (low < 0xdc00 || low >= 0xe000) {
      refuse(begin, "expected JSON, got a lone surrogate");
    }
    code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
  }
  append_utf8(code, unescaped_);
}

/// Reads four hexadecimal digits.
std::uint32_t JsonParser::hex() {
  std::uint32_t code = 0;
  const char* const end = end_ - at_ < 4 ? end_ : at_ + 4;
  const auto [stopped, error] = std::from_chars(at_, end, code, 16);
  if (error != std::errc() || stopped - at_ != 4) {
    at_ = stopped;
    unexpected("a hexadecimal digit");
  }
  at_ = end;
  return code;
}

}  // namespace danling::inline v0::formats
