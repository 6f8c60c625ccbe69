#include <danling/telemetry/console.hpp>

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include <danling/telemetry/text.hpp>

#include "core/signal_mask.hpp"

namespace danling::inline v0 {
namespace {

constexpr std::string_view erase_line = "\r\x1b[K";

bool set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool capable_terminal(int file) {
  const char* kind = std::getenv("TERM");
  return isatty(file) == 1 && kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

// An error of the console (a closed pipe) cannot be reported.
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

// Writing from the background may stop the process (SIGTTOU) and would disturb the shell's output.
bool in_foreground(int file) {
  const pid_t group = tcgetpgrp(file);
  return group < 0 || group == getpgrp();
}

// At most `columns` characters, without control characters; keeps UTF-8 sequences whole.
std::string one_line(std::string_view text, std::size_t columns) {
  std::string out;
  std::size_t width = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    width += (byte & 0xc0U) == 0x80U ? 0 : 1;
    if (width > columns) {
      break;
    }
    out += byte < 0x20 || byte == 0x7f ? ' ' : c;
  }
  return out;
}

}  // namespace

Console::Console(ConsoleOptions options)
    : options_(options),
      live_(capable_terminal(options.out)),
      out_color_(live_ && !set("NO_COLOR")),
      error_color_(capable_terminal(options.error) && !set("NO_COLOR")) {}

Console::~Console() { clear_live_line(); }

int Console::width() const {
  winsize size{};
  if (ioctl(options_.out, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  const char* columns = std::getenv("COLUMNS");
  const int given = columns == nullptr ? 0 : std::atoi(columns);
  return given > 0 ? given : 80;
}

void Console::print(std::string_view text, Stream stream) {
  const std::lock_guard lock(mutex_);
  buffer_.clear();
  if (stream == Stream::error) {
    erase();
    write_all(options_.out, buffer_);
    write_all(options_.error, std::string(text) + '\n');
    buffer_.clear();
  } else {
    erase();
    buffer_ += text;
    buffer_ += '\n';
  }
  draw();
  write_all(options_.out, buffer_);
}

void Console::set_live_line(std::string_view text) {
  if (!live_ || !in_foreground(options_.out)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  // One column stays free: a full last column makes some terminals wrap.
  line_ = one_line(text, static_cast<std::size_t>(width() > 1 ? width() - 1 : 1));
  buffer_.clear();
  draw();
  write_all(options_.out, buffer_);
}

void Console::clear_live_line() {
  const std::lock_guard lock(mutex_);
  buffer_.clear();
  erase();
  line_.clear();
  write_all(options_.out, buffer_);
}

void Console::erase() {
  if (drawn_) {
    buffer_ += erase_line;
    drawn_ = false;
  }
}

void Console::draw() {
  if (!line_.empty()) {
    buffer_ += '\r';
    buffer_ += line_;
    buffer_ += erase_line.substr(1);
    drawn_ = true;
  }
}

}  // namespace danling::inline v0
