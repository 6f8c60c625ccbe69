// Standard output and standard error: plain lines, and a block of live lines below them that is redrawn in place.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace danling::inline v0 {

struct ConsoleOptions {
  /// File descriptors; tests replace them.
  int out = 1;
  int error = 2;
};

/// Appearance of text; without colours all are plain.
enum class Tone { plain, faint, strong, good };

/// A part of a line. Its text holds no control sequences: control characters become spaces.
struct Span {
  std::string text;
  Tone tone = Tone::plain;
};
using StyledLine = std::vector<Span>;

/// Writes lines without buffering, in order with those of other programs. Thread-safe.
/// On a terminal that supports control sequences (TERM is not "dumb"), live lines may stand below all others.
///
/// Between two drawings the cursor stands at the beginning of the live lines. A terminal that becomes narrower may wrap
/// them, but it keeps the cursor there; so clearing from the cursor to the end of the screen removes them whatever
/// their height now is.
class Console {
 public:
  enum class Stream { out, error };

  explicit Console(ConsoleOptions options = {});
  /// Clears the live lines.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// Whether standard output is a terminal where lines can be redrawn.
  bool live() const { return live_; }
  /// Whether to colour output to `stream`: a terminal, and NO_COLOR is not set.
  bool color(Stream stream) const { return stream == Stream::out ? out_color_ : error_color_; }
  /// Current columns of the terminal; COLUMNS, else 80, if unknown.
  int width() const { return size().columns; }

  /// Writes `text` and a line feed; the live lines are cleared before and drawn again below.
  void print(std::string_view text, Stream stream = Stream::out);

  /// Replaces the live lines, by one write. Lines are cut to the width that the terminal has now, and those that exceed
  /// its height are left out. No effect unless `live()`, or while another job has the terminal.
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
