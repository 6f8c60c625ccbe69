// A JSON parser (RFC 8259) that passes values to a sink, without a tree.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <formats/byte_mask.hpp>

namespace danling::inline v0::formats {

/// An error in a JSON text, thrown by `JsonParser`; callers add file and line.
struct JsonFault {
  std::string what;
  /// In bytes from 1; 0 without a position.
  std::size_t column;
};

/// Throws a DataError. `source` is a text such as `file 'x', line 3`.
[[noreturn]] void fail_json(const JsonFault& fault, std::string_view source);

/// The keys of one object, to detect repeated keys. Up to 16 are compared if their bits collide; more are hashed.
class JsonKeys {
 public:
  /// Adds `key`, whose characters must stay in place. Returns false if it was added before.
  bool add(std::string_view key) {
    if (size_ == few_.size()) {
      if (many_.empty()) {
        many_.insert(few_.begin(), few_.end());
      }
      return many_.insert(key).second;
    }
    const std::size_t ends =
        key.empty() ? 0 : static_cast<unsigned char>(key.front()) * 7U + static_cast<unsigned char>(key.back());
    const std::uint64_t bit = std::uint64_t{1} << ((key.size() * 29 + ends) % 64);
    if ((bits_ & bit) != 0) {
      for (std::size_t i = 0; i < size_; ++i) {
        if (few_[i] == key) {
          return false;
        }
      }
    }
    bits_ |= bit;
    few_[size_++] = key;
    return true;
  }

 private:
  std::uint64_t bits_ = 0;
  std::size_t size_ = 0;
  std::array<std::string_view, 16> few_;
  std::unordered_set<std::string_view> many_;
};

/// Reads values in sequence and passes them to a sink: `null()`, `boolean(b)`, `integer(i)`, `number(d)` and
/// `text(view, lasting)`. A view is valid until the next call; if `lasting`, as long as the text. `object()` returns an
/// object whose `member(key, lasting)` returns the sink of a member; `list()` returns one with `item()`.
class JsonParser {
 public:
  explicit JsonParser(bool allow_nan) : allow_nan_(allow_nan) {}

  /// Reads all of `text`, with or without a byte order mark, as one value. @throws JsonFault
  template <class Sink>
  void parse(std::string_view text, Sink sink) {
    begin_ = text.data();
    at_ = begin_ + (text.starts_with("\xef\xbb\xbf") ? 3 : 0);
    end_ = begin_ + text.size();
    depth_ = 0;
    escaped_keys_.clear();
    skip_blanks();
    value(sink);
    skip_blanks();
    if (at_ != end_) {
      unexpected("the end");
    }
  }

 private:
  struct Text {
    std::string_view view;
    bool lasting;
  };

  template <class Sink>
  void value(Sink& sink) {
    switch (at_ == end_ ? '\0' : *at_) {
      case '{':
        return object(sink);
      case '[':
        return list(sink);
      case '"': {
        const Text text = string();
        return sink.text(text.view, text.lasting);
      }
      case 't':
        word("true");
        return sink.boolean(true);
      case 'f':
        word("false");
        return sink.boolean(false);
      case 'n':
        word("null");
        return sink.null();
      case 'N':
      case 'I':
        return sink.number(not_finite());
      default:
        return number(sink);
    }
  }

  template <class Sink>
  void object(Sink& sink) {
    enter();
    auto members = sink.object();
    JsonKeys keys;
    if (!is_next('}')) {
      for (;;) {
        if (at_ == end_ || *at_ != '"') {
          unexpected("a key in quotes");
        }
        Text key = string();
        if (!key.lasting) {
          key.view = escaped_keys_.emplace_back(key.view);
        }
        if (!keys.add(key.view)) {
          refuse_twice(key.view);
        }
        if (!is_next(':')) {
          unexpected("a ':'");
        }
        skip_blanks();
        auto member = members.member(key.view);
        value(member);
        if (!is_next(',')) {
          break;
        }
        skip_blanks();
      }
      if (!is_next('}')) {
        unexpected("a ',' or a '}'");
      }
    }
    --depth_;
  }

  template <class Sink>
  void list(Sink& sink) {
    enter();
    auto items = sink.list();
    if (!is_next(']')) {
      for (;;) {
        auto item = items.item();
        value(item);
        if (!is_next(',')) {
          break;
        }
        skip_blanks();
      }
      if (!is_next(']')) {
        unexpected("a ',' or a ']'");
      }
    }
    --depth_;
  }

  template <class Sink>
  void number(Sink& sink) {
    // At most 18 digits, which always fit int64.
    const char* at = at_;
    const bool negative = at < end_ && *at == '-';
    at += negative ? 1 : 0;
    const char* const digits = at;
    std::int64_t whole = 0;
    while (at < end_ && is_digit(*at) && at - digits < 18) {
      whole = whole * 10 + (*at++ - '0');
    }
    const bool simple = at > digits && (at - digits == 1 || *digits != '0') &&
                        (at == end_ || (!is_digit(*at) && *at != '.' && *at != 'e' && *at != 'E'));
    if (simple) {
      at_ = at;
      return sink.integer(negative ? -whole : whole);
    }
    std::int64_t integer = 0;
    double number = 0;
    if (other_number(integer, number)) {
      return sink.integer(integer);
    }
    sink.number(number);
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  void skip_blanks() {
    while (at_ < end_ && static_cast<unsigned char>(*at_) <= ' ' &&
           (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) {
      ++at_;
    }
  }
  /// Skips blanks, then `wanted` if it is next. Returns true if it was.
  bool is_next(char wanted) {
    skip_blanks();
    const bool is = at_ < end_ && *at_ == wanted;
    at_ += is ? 1 : 0;
    return is;
  }
  void enter() {
    if (++depth_ > 256) {
      refuse_depth();
    }
    ++at_;
    skip_blanks();
  }

  /// Reads a string; `at_` is its opening quote.
  Text string() {
    const char* const begin = ++at_;
    at_ = find_special(at_, end_);
    if (at_ < end_ && *at_ == '"') {
      return {std::string_view(begin, static_cast<std::size_t>(at_++ - begin)), true};
    }
    return special_string(begin);
  }

  /// Finds the first quote, backslash, control character or non-ASCII byte.
  static const char* find_special(const char* at, const char* end) {
    while (end - at >= 16) {
      if (const std::uint32_t found = special_in_string(at); found != 0) {
        return at + std::countr_zero(found);
      }
      at += 16;
    }
    while (at < end && *at != '"' && *at != '\\' && static_cast<signed char>(*at) >= 0x20) {
      ++at;
    }
    return at;
  }

  // The following functions, in json_parser.cpp, are called rarely or are slow anyway.
  Text special_string(const char* begin);
  void escape();
  std::uint32_t hex();
  void word(std::string_view wanted);
  double not_finite();
  /// Reads any other number; returns true if it is an integer.
  bool other_number(std::int64_t& integer, double& number);
  double parse_double(const char* begin, const char* end) const;
  [[noreturn]] void unexpected(std::string_view wanted) const;
  [[noreturn]] void refuse(const char* at, std::string what) const;
  [[noreturn]] static void refuse_twice(std::string_view key);
  [[noreturn]] static void refuse_depth();

  bool allow_nan_;
  const char* begin_ = nullptr;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  std::size_t depth_ = 0;
  std::string unescaped_;
  std::deque<std::string> escaped_keys_;
};

}  // namespace danling::inline v0::formats
