// The output of `danling launch`: reads bytes from the workers' pipes and writes whole lines to stdout and stderr.
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

/// Splits the bytes of one stream into lines.
///
/// A carriage return restarts the line, as on a terminal. A progress bar, which does this many times a second, becomes
/// one line per second and its last state. A line of more than `longest` bytes becomes several lines.
class LineSplitter {
 public:
  static constexpr std::size_t longest = std::size_t{1} << 20U;
  /// Receives each line without its line end.
  using Sink = std::function<void(std::string_view line)>;

  void add(std::string_view bytes, LaunchClock::time_point now, const Sink& sink);
  /// Call at the end of the stream: passes the rest as a line.
  void finish(const Sink& sink);
  /// The last line that is not blank; at most its first 500 bytes.
  const std::string& last() const { return last_; }

 private:
  void emit(const Sink& sink);

  std::string line_;
  bool returned_ = false;  ///< the next byte restarts the line
  LaunchClock::time_point next_progress_{};
  std::string last_;
};

/// A queue of lines for stdout and stderr. Writes them in the order of `add`, without blocking, so a slow reader delays
/// neither signals nor deadlines, and lines of both streams never mix within one file.
///
/// If a line cannot be written (`| head` has ended), drops it and reports this once on stderr.
class LineQueue {
 public:
  /// Adds a line; `descriptor` is 1 or 2.
  void add(int descriptor, std::string_view prefix, std::string_view line);
  bool empty() const { return parts_.empty(); }
  /// True if the caller must not read more lines until some are written.
  bool full() const { return size_ > std::size_t{1} << 20U; }
  /// The descriptor whose readiness to wait for, or -1.
  int awaited() const { return parts_.empty() ? -1 : parts_.front().descriptor; }
  /// Writes as much as possible without blocking.
  void write();
  /// Writes the rest; gives up if a reader accepts no bytes for five seconds.
  void finish();

 private:
  struct Part {
    int descriptor;
    std::string text;  ///< whole lines
  };
  void pop();

  std::deque<Part> parts_;
  std::size_t written_ = 0;  ///< written bytes of the first part
  std::size_t size_ = 0;
  std::array<bool, 3> reported_{};  ///< by descriptor
};

}  // namespace danling_command
