// Console: plain lines on standard output and standard error, and live lines below them that are redrawn in place.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace danling::inline v0 {

struct ConsoleOptions {
  /// File descriptors of standard output and standard error, for tests.
  int out = 1;
  int error = 2;
};

/// Appearance of text; without colours every tone is plain.
enum class Tone { plain, faint, strong, good };

/// A part of a line. Control characters in the text become spaces.
struct Span {
  std::string text;
  Tone tone = Tone::plain;
};
using StyledLine = std::vector<Span>;

/// Writes lines without buffering, so their order with the lines of other programs is preserved. Thread-safe. On a
/// terminal that supports control sequences (TERM is not "dumb"), it can draw live lines below all others.
///
/// Between two drawings the cursor is at the beginning of the live lines. If the terminal becomes narrower, it may wrap
/// them but keeps the cursor there. Clearing from the cursor to the end of the screen therefore removes them at any
/// height.
class Console {
 public:
  enum class Stream { out, error };

  explicit Console(ConsoleOptions options = {});
  /// Clears the live lines.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// True if standard output is a terminal on which lines can be redrawn.
  bool live() const { return live_; }
  /// True if `stream` is a terminal that supports control sequences, and NO_COLOR is unset or empty.
  bool color(Stream stream) const { return stream == Stream::out ? out_color_ : error_color_; }
  /// Columns of the terminal; if unknown, the variable COLUMNS, else 80.
  int width() const { return size().columns; }

  /// Writes `text` and a line feed. Clears the live lines before and redraws them below.
  void print(std::string_view text, Stream stream = Stream::out);

  /// Replaces the live lines by one write. Cuts lines to the terminal's current width and omits lines beyond its
  /// height. Does nothing unless `live()`, and nothing while the process is in the background.
  void set_live_lines(std::vector<StyledLine> lines);
  void clear_live_lines();

 private:
  struct Size {
    int columns, rows;
  };

  Size size() const;
  bool may_draw();
  void erase();
  void draw();
  void append(const StyledLine& line, std::size_t columns);

  std::mutex mutex_;
  ConsoleOptions options_;
  bool live_ = false;
  bool out_color_ = false;
  bool error_color_ = false;
  bool drawn_ = false;
  std::vector<StyledLine> lines_;
  std::string buffer_;
};

}  // namespace danling::inline v0
