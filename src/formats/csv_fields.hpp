// CSV text taken apart into rows and fields.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <danling/core/error.hpp>

namespace danling::inline v0::formats {

/// Walks over the fields of a text. One that needs no change is a view of it, else of a buffer until the next one.
class CsvFields {
 public:
  CsvFields(std::string_view text, char separator, char quote, char comment, std::string file)
      : at_(text.data()),
        end_(text.data() + text.size()),
        separator_(separator),
        quote_(quote),
        comment_(comment),
        file_(std::move(file)) {
    for (const char stop : {separator, '\n', '\r'}) {
      stops_[static_cast<unsigned char>(stop)] = true;
    }
  }

  /// Goes to the next row that is not empty or a comment; false at the end.
  bool next_row() {
    while (at_ < end_ && (*at_ == '\n' || *at_ == '\r' || (comment_ != '\0' && *at_ == comment_))) {
      while (at_ < end_ && *at_ != '\n' && *at_ != '\r') {
        ++at_;
      }
      end_line();
    }
    row_line_ = line_;
    return at_ < end_;
  }

  /// The next field; `last()` says whether the row ended with it.
  std::string_view next_field() {
    if (at_ < end_ && *at_ == quote_ && quote_ != '\0') {
      return quoted();
    }
    const char* const begin = at_;
    while (at_ < end_ && !stops_[static_cast<unsigned char>(*at_)]) {
      ++at_;
    }
    const std::string_view field(begin, static_cast<std::size_t>(at_ - begin));
    end_field();
    return field;
  }

  bool last() const { return last_; }
  /// Of the beginning of the row, from 1.
  std::uint64_t row_line() const { return row_line_; }

  template <class... Parts>
  [[noreturn]] void refuse(std::uint64_t line, const Parts&... parts) const {
    fail<DataError>("data.csv", parts..., " (file ", danling::quote(file_), ", line ", line, ")");
  }

 private:
  void end_line() {
    if (at_ < end_) {
      const bool two = *at_ == '\r' && end_ - at_ > 1 && at_[1] == '\n';
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
    const char* begin = ++at_;
    buffer_.clear();
    for (;;) {
      while (at_ < end_ && *at_ != quote_) {
        line_ += *at_ == '\n' || (*at_ == '\r' && (end_ - at_ == 1 || at_[1] != '\n')) ? 1 : 0;
        ++at_;
      }
      if (at_ == end_) {
        refuse(begin_line, "expected a ", danling::quote(std::string_view(&quote_, 1)),
               " that closes a field, got the end of the file");
      }
      if (end_ - at_ > 1 && at_[1] == quote_) {
        buffer_.append(begin, at_ + 1);
        at_ += 2;
        begin = at_;
        continue;
      }
      break;
    }
    std::string_view field(begin, static_cast<std::size_t>(at_ - begin));
    if (!buffer_.empty()) {
      buffer_ += field;
      field = buffer_;
    }
    ++at_;
    if (at_ < end_ && !stops_[static_cast<unsigned char>(*at_)]) {
      const std::size_t rest = std::min<std::size_t>(static_cast<std::size_t>(end_ - at_), 20);
      refuse(line_, "expected a separator or the end of the line after a closing quote, got ",
             danling::quote(std::string_view(at_, rest)));
    }
    end_field();
    return field;
  }

  const char* at_;
  const char* end_;
  char separator_;
  char quote_;
  char comment_;
  std::string file_;
  std::array<bool, 256> stops_{};
  std::string buffer_;
  std::uint64_t line_ = 1;
  std::uint64_t row_line_ = 1;
  bool last_ = false;
};

}  // namespace danling::inline v0::formats
