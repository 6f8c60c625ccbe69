// Log lines: short on the console, with time and level in the run's log file.
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
  /// Path of the log file, appended to; its folder must exist. Empty: no file.
  std::string file = {};
  /// Whether lines go to the console as well.
  bool console = true;
  /// Whether only warnings and errors of them do, and no live lines.
  bool quiet = false;
  /// Prefix of warnings and errors in the file, such as "rank=1/4 host=a". Empty: none.
  std::string context = {};
  /// Bytes of lines to keep until open_file() writes them; later ones are not in the file.
  std::size_t keep = 0;
};

/// Receives each line besides console and file, one at a time, from any thread. Must not log itself, nor throw.
using LogSink = std::function<void(LogLevel level, std::string_view text)>;

/// Thread-safe. On the console, information goes to standard output, the rest to standard error after "warning: " or
/// "error: ". In the file a line is `2026-12-31 23:59:59.123 info     text`.
/// The file is flushed at errors, by `flush()` (once per log boundary) and at close. A write error (a full disk) is
/// reported once on the console and does not end the run.
class Logger {
 public:
  /// @throws Error when the file cannot be opened.
  explicit Logger(LoggerOptions options = {}, ConsoleOptions console = {});
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  void info(std::string_view text) { log(LogLevel::info, text); }
  void warning(std::string_view text) { log(LogLevel::warning, text); }
  void error(std::string_view text) { log(LogLevel::error, text); }
  void log(LogLevel level, std::string_view text);

  /// A line whose numbers the live lines already show: to the file, and to the console unless it is live().
  void progress(std::string_view text);
  /// To the file only.
  void log_to_file(std::string_view text);

  /// Starts writing to a file, after construction without one, beginning with the kept lines.
  /// @throws Error when it cannot be opened, StateError when a file is already open.
  void open_file(const std::string& path);

  /// For a program that shows or stores lines itself; an empty sink removes it.
  void set_sink(LogSink sink);

  Console& console() { return console_; }
  /// Whether progress is drawn on the console: a terminal that gets information.
  bool live() const { return informs() && console_.live(); }
  bool has_file();
  /// Whether later lines go to the console as well.
  void show(bool on_console) { options_.console = on_console; }
  void flush();
  /// Flushes and closes the file; later lines go to the console only. Safe to call twice.
  void close();

  /// "spdlog" or "plain": the file writer of this build.
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
