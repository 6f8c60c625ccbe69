// Logger: writes log lines, short on the console, with time and level in the log file of the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <danling/telemetry/console.hpp>
#include <danling/telemetry/log_options.hpp>

namespace danling::inline v0 {

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
  /// The lowest level of lines on the console, in the file and for the program's sink.
  LogLevel level = LogLevel::info;
  /// The file's lines, in spdlog's syntax.
  std::string pattern = std::string(default_log_pattern);
  /// Bytes of a file before rotation: run.log becomes run.1.log, run.1.log becomes run.2.log and so on. 0: no rotation.
  std::uint64_t max_file_size = 0;
  /// Rotated files to keep.
  std::size_t max_files = 5;
};

/// Receives each line of the level in addition to console and file, one at a time, from any thread. Must neither log
/// nor throw.
using LogSink = std::function<void(LogLevel level, std::string_view text)>;

/// Writes info lines to standard output as they are. Others begin with their level; warnings and errors go to standard
/// error. Flushes the file at warnings and errors, in `flush()` (once per log boundary) and at close. Reports the first
/// write error (a full disk) on the console and continues. Thread-safe.
class Logger {
 public:
  /// @throws Error if the file cannot be opened, ConfigError for a wrong pattern, and for a `max_file_size` without
  /// `max_files`
  explicit Logger(LoggerOptions options = {}, ConsoleOptions console = {});
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  void debug(std::string_view text) { log(LogLevel::debug, text); }
  void info(std::string_view text) { log(LogLevel::info, text); }
  void warning(std::string_view text) { log(LogLevel::warning, text); }
  void error(std::string_view text) { log(LogLevel::error, text); }
  void log(LogLevel level, std::string_view text);
  /// True if lines of `level` are written: guards texts that are expensive to make.
  bool should_log(LogLevel level) const;

  struct Warnings {
    std::int64_t count = 0;
    std::string first = {};
  };
  /// The warnings so far, also those that the level or the console leaves out, without those of log_to_file().
  Warnings warnings() const;

  /// Writes a line of progress, whose numbers live lines also show: to the file, and to the console unless live().
  void progress(std::string_view text);
  /// Writes a line only to the file.
  void log_to_file(std::string_view text, LogLevel level = LogLevel::info);

  /// Opens a log file after construction without one and writes the kept lines to it.
  /// @throws Error if the file cannot be opened, StateError if a file is already open
  void open_file(const std::string& path);

  /// Sets a sink, for a program that shows or stores lines itself; an empty sink removes it.
  void set_sink(LogSink sink);

  Console& console() { return console_; }
  /// True if the console can draw live lines and receives info lines.
  bool live() const;
  bool has_file();
  /// Sets whether later lines go to the console too.
  void show(bool on_console);
  void flush();
  /// Flushes and closes the file; later lines go only to the console. Safe to call twice.
  void close();

 private:
  struct Sinks;

  Console console_;
  std::unique_ptr<Sinks> sinks_;
};

}  // namespace danling::inline v0
