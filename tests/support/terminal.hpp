// A real pseudo-terminal, and what a person would see on it.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include <support/catch.hpp>

namespace danling_test {

/// The program writes to `slave()`; `raw()` is every byte that arrived, `screen()` the lines that are visible.
class Terminal {
 public:
  explicit Terminal(int columns = 80) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 24;
    REQUIRE(openpty(&master_, &slave_, nullptr, nullptr, &size) == 0);
    REQUIRE(fcntl(master_, F_SETFL, O_NONBLOCK) == 0);
  }
  ~Terminal() {
    ::close(master_);
    ::close(slave_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  int slave() const { return slave_; }

  const std::string& raw() {
    // The kernel passes bytes on when it finds the time: those before this mark have arrived when it has.
    constexpr char mark = '\x06';
    REQUIRE(::write(slave_, &mark, 1) == 1);
    char block[4096];
    pollfd end{master_, POLLIN, 0};
    while (raw_.empty() || raw_.back() != mark) {
      REQUIRE(poll(&end, 1, 60000) > 0);
      const ssize_t got = ::read(master_, block, sizeof block);
      REQUIRE(got > 0);
      raw_.append(block, static_cast<std::size_t>(got));
    }
    raw_.pop_back();
    return raw_;
  }

  /// The visible lines without those at the end that are empty. Knows line feed, carriage return and ESC [ K; fails on
  /// any other control character.
  std::vector<std::string> screen() {
    std::vector<std::string> lines(1);
    std::size_t column = 0;
    const std::string& bytes = raw();
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == '\r') {
        column = 0;
      } else if (bytes[i] == '\n') {
        lines.emplace_back();
        column = 0;
      } else if (bytes.compare(i, 3, "\x1b[K") == 0) {
        lines.back().resize(std::min(column, lines.back().size()));
        i += 2;
      } else {
        REQUIRE(static_cast<unsigned char>(bytes[i]) >= 0x20);
        if (lines.back().size() <= column) {
          lines.back().resize(column + 1, ' ');
        }
        lines.back()[column++] = bytes[i];
      }
    }
    while (!lines.empty() && lines.back().empty()) {
      lines.pop_back();
    }
    return lines;
  }

 private:
  int master_ = -1;
  int slave_ = -1;
  std::string raw_;
};

/// What is written to a pipe, for the case without a terminal.
class Pipe {
 public:
  Pipe() {
    REQUIRE(pipe(ends_) == 0);
    REQUIRE(fcntl(ends_[0], F_SETFL, O_NONBLOCK) == 0);
  }
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int end() const { return ends_[1]; }
  const std::string& text() {
    char block[4096];
    for (ssize_t got = 0; (got = ::read(ends_[0], block, sizeof block)) > 0;) {
      text_.append(block, static_cast<std::size_t>(got));
    }
    return text_;
  }

 private:
  int ends_[2] = {-1, -1};
  std::string text_;
};

}  // namespace danling_test
