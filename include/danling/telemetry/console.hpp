// Standard output and standard error: plain lines, and at most one line that is rewritten in place.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

namespace danling::inline v0 {

struct ConsoleOptions {
  /// File descriptors; tests replace them.
  int out = 1;
  int error = 2;
};

/// Writes lines without buffering, in order with those of other programs. Thread-safe.
/// On a terminal that supports control sequences (TERM is not "dumb"), one live line may stand below all others.
class Console {
 public:
  enum class Stream { out, error };

  explicit Console(ConsoleOptions options = {});
  /// Clears the live line.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// Whether standard output is a terminal where a line can be rewritten.
  bool live() const { return live_; }
  /// Whether to colour output to `stream`: a terminal, and NO_COLOR is not set.
  bool color(Stream stream) const { return stream == Stream::out ? out_color_ : error_color_; }
  /// Current columns of the terminal; COLUMNS, else 80, if unknown.
  int width() const;

  /// Writes `text` and a line feed; the live line is cleared before and drawn again below.
  void print(std::string_view text, Stream stream = Stream::out);

  /// Replaces the live line, cut to the terminal's width. No effect unless `live()`, or while another job has the
  /// terminal. Control characters become spaces.
  void set_live_line(std::string_view text);
  void clear_live_line();

 private:
  void erase();
  void draw();

  std::mutex mutex_;
  ConsoleOptions options_;
  bool live_ = false;
  bool out_color_ = false;
  bool error_color_ = false;
  bool drawn_ = false;
  std::string line_;
  std::string buffer_;
};

}  // namespace danling::inline v0
