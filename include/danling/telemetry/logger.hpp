// Logger: writes log lines, short on the console, with time and level in the log file of the run.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/telemetry/console.hpp>

namespace danling::inline v0 {

enum class LogLevel { info, warning, error };

namespace detail {
class LogFile;
}

struct LoggerOptions {
  /// Path of the log file, which is appended to; its folder must exist. Empty: no file.
  std::string file = {};
  /// Writes lines to the console too.
  bool console = true;
  /// Writes only warnings and errors to the console, and no live lines.
  bool quiet = false;
  /// Prefix of warnings and errors in the file, such as "rank=1/4 host=a". Empty: none.
  std::string context = {};
  /// Bytes of lines to keep until open_file() writes them; further lines are missing in the file.
  std::size_t keep = 0;
};

/// Receives each line in addition to console and file, one at a time, from any thread. Must neither log nor throw.
using LogSink = std::function<void(LogLevel level, std::string_view text)>;

/// Writes info lines to standard output, and others to standard error after "warning: " or "error: ". A line of the
/// file is `2026-12-31 23:59:59.123 info     text`. Flushes the file at warnings and errors, in `flush()` (once per log
/// boundary) and at close. Reports the first write error (a full disk) on the console and continues. Thread-safe.
class Logger {
 public:
  /// @throws Error if the file cannot be opened
  explicit Logger(LoggerOptions options = {}, ConsoleOptions console = {});
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  void info(std::string_view text) { log(LogLevel::info, text); }
  void warning(std::string_view text) { log(LogLevel::warning, text); }
  void error(std::string_view text) { log(LogLevel::error, text); }
  void log(LogLevel level, std::string_view text);

  /// Writes a line of progress, whose numbers live lines also show: to the file, and to the console unless live().
  void progress(std::string_view text);
  /// Writes a line only to the file.
  void log_to_file(std::string_view text);

  /// Opens a log file after construction without one and writes the kept lines to it.
  /// @throws Error if the file cannot be opened, StateError if a file is already open
  void open_file(const std::string& path);

  /// Sets a sink, for a program that shows or stores lines itself; an empty sink removes it.
  void set_sink(LogSink sink);

  Console& console() { return console_; }
  /// True if the console can draw live lines and receives info lines.
  bool live() const { return informs() && console_.live(); }
  bool has_file();
  /// Sets whether later lines go to the console too.
  void show(bool on_console) { options_.console = on_console; }
  void flush();
  /// Flushes and closes the file; later lines go only to the console. Safe to call twice.
  void close();

  /// Returns the file writer of this build: "spdlog" or "plain".
  static const char* backend();

 private:
  bool informs() const { return options_.console && !options_.quiet; }
  void write_file(LogLevel level, std::string_view text);
  void print(LogLevel level, std::string_view text);
  void complain(const std::string& reason);

  LoggerOptions options_;
  Console console_;
  std::mutex mutex_;
  std::unique_ptr<detail::LogFile> file_;
  LogSink sink_;
  std::vector<std::pair<LogLevel, std::string>> kept_;
  std::size_t kept_bytes_ = 0;
  bool complained_ = false;
};

}  // namespace danling::inline v0
