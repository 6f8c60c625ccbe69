// Emulates the screen of a terminal: what a user sees after some bytes, also after the window was resized.
#pragma once

#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <support/catch.hpp>

namespace danling_test {

/// Interprets the control sequences that the library writes, and fails on any other.
class Screen {
 public:
  /// A narrower window wraps existing lines (as most do) or cuts them (as xterm does).
  enum class Resize { wraps, cuts };

  explicit Screen(int columns = 80, int rows = 24, Resize resize = Resize::wraps)
      : columns_(static_cast<std::size_t>(columns)), rows_(static_cast<std::size_t>(rows)), resize_(resize) {}

  void feed(const std::string& bytes) {
    pending_ += bytes;
    std::size_t at = 0;
    while (at < pending_.size()) {
      const std::size_t size = step(at);
      if (size == 0) {
        break;  // the rest of a sequence is missing
      }
      at += size;
    }
    pending_.erase(0, at);
  }

  void resize(int columns, int rows) {
    const auto width = static_cast<std::size_t>(columns);
    rows_ = static_cast<std::size_t>(rows);
    if (resize_ == Resize::wraps) {
      wrap_to(width);
    } else {
      for (Row& row : lines_) {
        row.cells.resize(std::min(row.cells.size(), width));
      }
    }
    columns_ = width;
    column_ = std::min(column_, columns_ - 1);
    top_ = std::min(std::max(top_, lines_.size() - std::min(lines_.size(), rows_)), row_);
    full_ = false;
  }

  /// Returns the lines, including those that have scrolled away, without trailing spaces and empty lines.
  std::vector<std::string> lines() const {
    std::vector<std::string> out;
    for (const Row& row : lines_) {
      std::string text;
      for (const std::string& cell : row.cells) {
        text += cell;
      }
      text.erase(text.find_last_not_of(' ') + 1);
      out.push_back(text);
    }
    while (!out.empty() && out.back().empty()) {
      out.pop_back();
    }
    return out;
  }

  /// Returns the columns that the C library assigns to a character.
  static int width_of(const std::string& character) {
    static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    REQUIRE(locale != nullptr);
    const locale_t before = uselocale(locale);
    wchar_t wide = 0;
    mbstate_t state = {};
    const bool valid = mbrtowc(&wide, character.data(), character.size(), &state) <= character.size();
    const int width = valid ? wcwidth(wide) : 1;
    uselocale(before);
    return width;
  }

 private:
  struct Row {
    std::vector<std::string> cells;  // a wide character is followed by an empty one
    bool wraps = false;              // continues in the next row
  };

  static std::size_t sequence_size(unsigned char first) {
    return first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  }

  std::size_t step(std::size_t at) {
    const auto byte = static_cast<unsigned char>(pending_[at]);
    if (byte == '\r') {
      column_ = 0;
      full_ = false;
      return 1;
    }
    if (byte == '\n') {
      line_feed();
      return 1;
    }
    if (byte == 0x1b) {
      return control(at);
    }
    INFO("byte " << int(byte));
    REQUIRE(byte >= 0x20);
    REQUIRE(byte != 0x7f);
    const std::size_t size = sequence_size(byte);
    if (at + size > pending_.size()) {
      return 0;
    }
    put(pending_.substr(at, size));
    return size;
  }

  std::size_t control(std::size_t at) {
    const std::size_t end = pending_.find_first_of("ABCDHJKhlm", at + 1);
    if (end == std::string::npos) {
      return 0;
    }
    const std::string sequence = pending_.substr(at + 1, end - at);
    INFO("ESC " << sequence);
    if (sequence == "[K") {
      row().cells.resize(std::min(row().cells.size(), column_));
      row().wraps = false;
    } else if (sequence == "[J") {
      row().cells.resize(std::min(row().cells.size(), column_));
      row().wraps = false;
      lines_.resize(row_ + 1);
    } else if (sequence == "[?7l" || sequence == "[?7h") {
      wraps_ = sequence == "[?7h";
    } else if (sequence.back() == 'A') {
      const auto up = static_cast<std::size_t>(std::stoul(sequence.substr(1)));
      row_ = std::max(top_, row_ - std::min(row_, up));
      full_ = false;
    } else {
      REQUIRE(sequence.back() == 'm');
    }
    return end - at + 1;
  }

  Row& row() { return lines_[row_]; }

  void line_feed() {
    ++row_;
    full_ = false;
    if (row_ == lines_.size()) {
      lines_.emplace_back();
    }
    top_ = std::max(top_, row_ + 1 - std::min(row_ + 1, rows_));
  }

  void put(const std::string& character) {
    const int width = width_of(character);
    REQUIRE(width >= 0);
    if (width == 0) {
      if (column_ > 0 && column_ <= row().cells.size()) {
        row().cells[column_ - 1] += character;
      }
      return;
    }
    const auto columns = static_cast<std::size_t>(width);
    if (full_ || column_ + columns > columns_) {
      if (wraps_) {
        row().wraps = true;
        line_feed();
        column_ = 0;
      } else {
        column_ = columns_ - columns;
      }
    }
    row().cells.resize(std::max(row().cells.size(), column_ + columns), " ");
    row().cells[column_] = character;
    if (columns == 2) {
      row().cells[column_ + 1].clear();
    }
    column_ += columns;
    full_ = column_ >= columns_;
    column_ = std::min(column_, columns_ - 1);
  }

  // Joins wrapped lines and wraps them again; the cursor stays at its character.
  void wrap_to(std::size_t width) {
    std::vector<Row> out;
    std::size_t cursor_row = 0, cursor_column = 0;
    for (std::size_t begin = 0; begin < lines_.size();) {
      std::vector<std::string> cells;
      std::size_t end = begin;
      std::size_t cursor = std::string::npos;
      for (bool more = true; more; ++end) {
        cursor = end == row_ ? cells.size() + column_ : cursor;
        cells.insert(cells.end(), lines_[end].cells.begin(), lines_[end].cells.end());
        more = lines_[end].wraps && end + 1 < lines_.size();
      }
      begin = end;
      std::size_t at = 0;
      do {
        std::size_t count = std::min(width, cells.size() - at);
        if (at + count < cells.size() && cells[at + count].empty() && count > 1) {
          --count;  // a wide character is not split
        }
        if (cursor != std::string::npos && cursor >= at && (cursor < at + count || at + count >= cells.size())) {
          cursor_row = out.size();
          cursor_column = cursor - at;
        }
        const auto first = cells.begin() + static_cast<std::ptrdiff_t>(at);
        out.push_back({{first, first + static_cast<std::ptrdiff_t>(count)}, at + count < cells.size()});
        at += count;
      } while (at < cells.size());
    }
    lines_ = std::move(out);
    row_ = cursor_row;
    column_ = cursor_column;
  }

  std::size_t columns_, rows_;
  Resize resize_;
  std::vector<Row> lines_ = std::vector<Row>(1);
  std::size_t top_ = 0, row_ = 0, column_ = 0;
  bool full_ = false;  // the last column is written; the next character wraps
  bool wraps_ = true;
  std::string pending_;
};

}  // namespace danling_test
