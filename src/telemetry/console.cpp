#include <danling/telemetry/console.hpp>

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <danling/core/format.hpp>
#include <danling/telemetry/text.hpp>

#include <core/signal_mask.hpp>

namespace danling::inline v0 {
namespace {

// Without wrapping, a line stays one line even if the terminal draws a character wider than text_width() returns.
constexpr std::string_view no_wrapping = "\x1b[?7l";
constexpr std::string_view wrapping = "\x1b[?7h";
constexpr std::string_view erase_to_line_end = "\x1b[K";
constexpr std::string_view erase_below = "\x1b[J";

bool set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool capable_terminal(int file) {
  const char* kind = std::getenv("TERM");
  return isatty(file) == 1 && kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

// Ignores errors (a closed pipe), since there is no place to report them.
void write_all(int file, std::string_view text) {
  const detail::FileSizeSignalMask quiet;
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd end{file, POLLOUT, 0};
      if (poll(&end, 1, 1000) <= 0) {
        return;
      }
    } else if (errno != EINTR) {
      return;
    }
  }
}

// Returns true in the foreground. Writes from the background may stop the process (SIGTTOU) and disturb the shell.
bool in_foreground(int file) {
  const pid_t group = tcgetpgrp(file);
  return group < 0 || group == getpgrp();
}

std::string_view sequence_of(Tone tone) {
  switch (tone) {
    case Tone::faint:
      return "\x1b[2m";
    case Tone::strong:
      return "\x1b[1m";
    case Tone::good:
      return "\x1b[32m";
    case Tone::plain:
      break;
  }
  return {};
}

}  // namespace

Console::Console(ConsoleOptions options)
    : options_(options),
      live_(capable_terminal(options.out)),
      out_color_(live_ && !set("NO_COLOR")),
      error_color_(capable_terminal(options.error) && !set("NO_COLOR")) {}

Console::~Console() { clear_live_lines(); }

Console::Size Console::size() const {
  winsize size{};
  const bool known = ioctl(options_.out, TIOCGWINSZ, &size) == 0;
  const int rows = known && size.ws_row > 0 ? size.ws_row : 24;
  if (known && size.ws_col > 0) {
    return {size.ws_col, rows};
  }
  const char* columns = std::getenv("COLUMNS");
  const int given = columns == nullptr ? 0 : std::atoi(columns);
  return {given > 0 ? given : 80, rows};
}

void Console::print(std::string_view text, Stream stream) {
  const std::lock_guard lock(mutex_);
  const bool draws = may_draw();
  erase();
  if (stream == Stream::error) {
    write_all(options_.out, buffer_);
    write_all(options_.error, std::string(text) + '\n');
    buffer_.clear();
  } else {
    buffer_ += text;
    buffer_ += '\n';
  }
  if (draws) {
    draw();
  }
  write_all(options_.out, buffer_);
  buffer_.clear();
}

void Console::set_live_lines(std::vector<StyledLine> lines) {
  if (!live_) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (!may_draw()) {
    return;
  }
  lines_ = std::move(lines);
  draw();
  write_all(options_.out, buffer_);
  buffer_.clear();
}

void Console::clear_live_lines() {
  const std::lock_guard lock(mutex_);
  may_draw();
  erase();
  lines_.clear();
  write_all(options_.out, buffer_);
  buffer_.clear();
}

// Returns false in the background, where the cursor may have moved since the last drawing.
bool Console::may_draw() {
  if (!live_ || !in_foreground(options_.out)) {
    drawn_ = false;
    return false;
  }
  return true;
}

void Console::erase() {
  if (drawn_) {
    buffer_ += '\r';
    buffer_ += erase_below;
    drawn_ = false;
  }
}

// Draws over the previous lines without clearing them first, which would flicker.
void Console::draw() {
  const Size size = this->size();
  const std::size_t count = std::min(lines_.size(), static_cast<std::size_t>(size.rows));
  if (count == 0) {
    erase();
    return;
  }
  buffer_ += '\r';
  buffer_ += no_wrapping;
  for (std::size_t i = 0; i < count; ++i) {
    buffer_ += i > 0 ? "\r\n" : "";
    // Keeps one column free: some terminals clear a full last column when the rest of the line is erased.
    append(lines_[i], static_cast<std::size_t>(std::max(size.columns - 1, 1)));
    buffer_ += i + 1 < count ? erase_to_line_end : erase_below;
  }
  buffer_ += wrapping;
  buffer_ += '\r';
  if (count > 1) {
    buffer_ += concat("\x1b[", count - 1, "A");
  }
  drawn_ = true;
}

void Console::append(const StyledLine& line, std::size_t columns) {
  for (const Span& span : line) {
    const std::string text = cut_to_width(span.text, columns);
    const std::string_view sequence = out_color_ ? sequence_of(span.tone) : std::string_view();
    buffer_ += sequence;
    buffer_ += text;
    buffer_ += sequence.empty() ? "" : "\x1b[0m";
    const std::size_t width = text_width(span.text);
    if (width > columns) {
      return;  // the next span must not follow a truncated span
    }
    columns -= width;
  }
}

}  // namespace danling::inline v0
