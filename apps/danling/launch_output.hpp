// The output of the workers of `danling launch`: bytes of many pipes in, whole lines on stdout and stderr out.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace danling_command {

using LaunchClock = std::chrono::steady_clock;

/// Cuts the bytes of one stream into lines.
///
/// A carriage return begins the line again, as on a terminal; a progress bar, which does so many times a second,
/// becomes one line a second and its last state. A line of more than `longest` bytes is cut into several.
class LineSplitter {
 public:
  static constexpr std::size_t longest = std::size_t{1} << 20U;
  /// Receives each line, without its end.
  using Sink = std::function<void(std::string_view line)>;

  void add(std::string_view bytes, LaunchClock::time_point now, const Sink& sink);
  /// The stream has ended: the rest is a line too.
  void finish(const Sink& sink);
  /// The last line that is not blank, and at most its first 500 bytes.
  const std::string& last() const { return last_; }

 private:
  void emit(const Sink& sink);

  std::string line_;
  bool returned_ = false;  ///< the next byte begins the line again
  LaunchClock::time_point next_progress_{};
  std::string last_;
};

/// Lines on their way to stdout and stderr. They are written in the order of `add` and only as fast as both are read,
/// so that a reader that stands still stops neither signals nor the clock, and lines of both never mix in one file.
///
/// Where a line cannot be written, as after `| head` has ended, it is dropped; the first time is reported on stderr.
class LineQueue {
 public:
  /// `descriptor`: 1 or 2.
  void add(int descriptor, std::string_view prefix, std::string_view line);
  bool empty() const { return parts_.empty(); }
  /// Whether no more lines should be read until some are written.
  bool full() const { return size_ > std::size_t{1} << 20U; }
  /// The descriptor to wait for, or -1.
  int awaited() const { return parts_.empty() ? -1 : parts_.front().descriptor; }
  /// Writes what can be written now.
  void write();
  /// Writes the rest; gives up on a reader that takes nothing for five seconds.
  void finish();

 private:
  struct Part {
    int descriptor;
    std::string text;  ///< whole lines
  };
  void pop();

  std::deque<Part> parts_;
  std::size_t written_ = 0;  ///< bytes of the first part
  std::size_t size_ = 0;
  std::array<bool, 3> reported_{};  ///< by descriptor
};

}  // namespace danling_command
