// A pseudo-terminal, and what a user would see on it.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/screen.hpp>

namespace danling_test {

/// The program writes to `slave()`; `raw()` returns all received bytes, `screen()` the visible lines.
class Terminal {
 public:
  explicit Terminal(int columns = 80, int rows = 24, Screen::Resize resize = Screen::Resize::wraps)
      : screen_(columns, rows, resize) {
    const winsize size = size_of(columns, rows);
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
    // The kernel passes bytes on with a delay: when this mark has arrived, all bytes before it have too.
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

  /// Returns the lines that a user sees.
  std::vector<std::string> screen() {
    show();
    return screen_.lines();
  }

  /// Resizes the window, as when a user drags its edge.
  void resize(int columns, int rows = 24) {
    show();
    const winsize size = size_of(columns, rows);
    REQUIRE(ioctl(master_, TIOCSWINSZ, &size) == 0);
    screen_.resize(columns, rows);
  }

 private:
  static winsize size_of(int columns, int rows) {
    return {static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0, 0};
  }
  void show() {
    raw();
    screen_.feed(raw_.substr(shown_));
    shown_ = raw_.size();
  }

  int master_ = -1;
  int slave_ = -1;
  std::string raw_;
  std::size_t shown_ = 0;
  Screen screen_;
};

/// Collects what is written to a pipe, for the case without a terminal.
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
