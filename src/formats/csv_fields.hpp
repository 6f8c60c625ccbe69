// Splits CSV text into rows and fields.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <danling/core/error.hpp>
#include <danling/formats/table.hpp>

#include <formats/byte_mask.hpp>

namespace danling::inline v0::formats {

/// Iterates over the fields of a text from the beginning of a row to the end of the text. A field is a view of the
/// text, or, if quotes were removed, of a buffer that is valid until the next field.
class CsvFields {
 public:
  /// `line` is the line number of `begin`. The strings must outlive the object.
  CsvFields(std::string_view text, const char* begin, std::uint64_t line, const CsvOptions& options,
            const std::string& file)
      : at_(begin),
        end_(text.data() + text.size()),
        next_window_(begin),
        separator_(options.separator),
        quote_(options.quote == '\0' ? options.separator : options.quote),
        comment_(options.comment),
        quotes_(options.quote != '\0'),
        file_(file),
        line_(line) {}

  /// Moves to the next row that is not empty or a comment; returns false at the end.
  bool next_row() {
    while (at_ < end_ && (*at_ == '\n' || *at_ == '\r' || (comment_ != '\0' && *at_ == comment_))) {
      do {
        at_ = next_mark();
      } while (at_ < end_ && *at_ != '\n' && *at_ != '\r');
      end_line();
    }
    row_line_ = line_;
    return at_ < end_;
  }

  /// Returns the next field; then `last()` is true if the field ends the row.
  std::string_view next_field() {
    if (quotes_ && at_ < end_ && *at_ == quote_) {
      return quoted();
    }
    const char* const begin = at_;
    do {
      at_ = next_mark();
    } while (quotes_ && at_ < end_ && *at_ == quote_);
    const std::string_view field(begin, static_cast<std::size_t>(at_ - begin));
    end_field();
    return field;
  }

  bool last() const { return last_; }
  /// The next byte to read.
  const char* at() const { return at_; }
  /// The line of the next byte, from 1.
  std::uint64_t line() const { return line_; }
  /// The line on which the current row begins, from 1.
  std::uint64_t row_line() const { return row_line_; }
  /// True if a byte so far, or slightly ahead, may be NUL or not ASCII.
  bool has_other() const { return other_; }

  template <class... Parts>
  [[noreturn]] void refuse(std::uint64_t line, const Parts&... parts) const {
    fail<DataError>("data.csv", parts..., " (file ", danling::detail::quote(file_), ", line ", line, ")");
  }

 private:
  /// Finds the next separator, quote or line end, or the end of the text.
  const char* next_mark() {
    while (marks_ == 0) {
      const auto left = static_cast<std::size_t>(end_ - next_window_);
      if (left == 0) {
        return end_;
      }
      window_ = next_window_;
      if (left >= 64) {
        next_window_ += 64;
        marks_ = marks_of(window_, separator_, quote_, other_);
      } else {
        next_window_ = end_;
        char rest[64];
        std::memset(rest, ' ', sizeof rest);
        std::memcpy(rest, window_, left);
        marks_ = marks_of(rest, separator_, quote_, other_) & ((std::uint64_t{1} << left) - 1);
      }
    }
    const char* const mark = window_ + std::countr_zero(marks_);
    marks_ &= marks_ - 1;
    return mark;
  }
  /// Moves behind a line end, or stops at the end of the text.
  void end_line() {
    if (at_ < end_) {
      const bool two = *at_ == '\r' && end_ - at_ > 1 && at_[1] == '\n';
      if (two) {
        next_mark();
      }
      at_ += two ? 2 : 1;
      ++line_;
    }
  }
  void end_field() {
    last_ = at_ == end_ || *at_ != separator_;
    if (last_) {
      end_line();
    } else {
      ++at_;
    }
  }
  std::string_view quoted() {
    const std::uint64_t begin_line = line_;
    const char* begin = next_mark() + 1;
    buffer_.clear();
    for (;;) {
      const char* const mark = next_mark();
      if (mark == end_) {
        at_ = end_;
        refuse(begin_line, "expected a ", danling::detail::quote(std::string_view(&quote_, 1)),
               " that closes a field, got the end of the file");
      }
      if (*mark == '\n' || (*mark == '\r' && (end_ - mark == 1 || mark[1] != '\n'))) {
        ++line_;
      } else if (*mark == quote_) {
        if (end_ - mark == 1 || mark[1] != quote_) {
          at_ = mark;
          break;
        }
        next_mark();
        buffer_.append(begin, mark + 1);
        begin = mark + 2;
      }
    }
    std::string_view field(begin, static_cast<std::size_t>(at_ - begin));
    if (!buffer_.empty()) {
      buffer_ += field;
      field = buffer_;
    }
    ++at_;
    if (at_ < end_ && *at_ != separator_ && *at_ != '\n' && *at_ != '\r') {
      const std::size_t rest = std::min<std::size_t>(static_cast<std::size_t>(end_ - at_), 20);
      refuse(line_, "expected a separator or the end of the line after a closing quote, got ",
             danling::detail::quote(std::string_view(at_, rest)));
    }
    next_mark();
    end_field();
    return field;
  }

  const char* at_;
  const char* end_;
  // Remaining marks among the 64 bytes from `window_`.
  std::uint64_t marks_ = 0;
  const char* window_ = nullptr;
  const char* next_window_;
  char separator_;
  char quote_;  // equal to the separator if there is none
  char comment_;
  bool quotes_;
  bool last_ = false;
  bool other_ = false;
  const std::string& file_;
  std::string buffer_;
  std::uint64_t line_;
  std::uint64_t row_line_ = 1;
};

}  // namespace danling::inline v0::formats
