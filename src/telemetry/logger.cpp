// Logger by spdlog. Only this source includes spdlog; it must not include LibTorch, which contains another fmt.
#include <danling/telemetry/logger.hpp>

#include <algorithm>
#include <mutex>
#include <utility>

#include <spdlog/logger.h>

#include <danling/core/error.hpp>

#include <telemetry/log_file_sink.hpp>

namespace danling::inline v0 {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  static constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                         spdlog::level::err, spdlog::level::off};
  return levels[static_cast<std::size_t>(level)];
}

/// Writes info lines as they are, and others after their level.
class ConsoleSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit ConsoleSink(Console& console)
      : base_sink(std::make_unique<spdlog::pattern_formatter>("%^%l:%$ %v", spdlog::pattern_time_type::local, "")),
        console_(console) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (message.level == spdlog::level::info) {
      console_.print(std::string_view(message.payload.data(), message.payload.size()));
      return;
    }
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string text(line.data(), line.size());
    const bool problem = message.level >= spdlog::level::warn;
    const auto stream = problem ? Console::Stream::error : Console::Stream::out;
    if (console_.color(stream)) {
      text.insert(message.color_range_end, "\x1b[0m");
      text.insert(message.color_range_start, message.level == spdlog::level::err ? "\x1b[31m"
                                             : problem                           ? "\x1b[33m"
                                                                                 : "\x1b[2m");
    }
    console_.print(text, stream);
  }
  void flush_() override {}

 private:
  Console& console_;
};

/// Passes lines to the program.
class ProgramSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void set(LogSink receiver) {
    const std::lock_guard lock(mutex_);
    sink_ = std::move(receiver);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (sink_) {
      const LogLevel level = message.level == spdlog::level::debug  ? LogLevel::debug
                             : message.level == spdlog::level::info ? LogLevel::info
                             : message.level == spdlog::level::warn ? LogLevel::warning
                                                                    : LogLevel::error;
      sink_(level, std::string_view(message.payload.data(), message.payload.size()));
    }
  }
  void flush_() override {}

 private:
  LogSink sink_;
};

}  // namespace

struct Logger::Sinks {
  Sinks(const LoggerOptions& options, Console& lines)
      : quiet(options.quiet),
        console(std::make_shared<ConsoleSink>(lines)),
        file(std::make_shared<detail::LogFileSink>(
            options, [sink = console](const std::string& text) { sink->log({"danling", spdlog::level::warn, text}); })),
        to_files("danling", {program, file}),
        to_all("danling", {program, file, console}) {
    to_files.set_level(level_of(options.level));
    to_all.set_level(level_of(options.level));
    show(options.console);
  }

  void show(bool on_console) {
    console->set_level(!on_console ? spdlog::level::off : quiet ? spdlog::level::warn : spdlog::level::trace);
  }
  bool informs() const { return to_all.should_log(spdlog::level::info) && console->should_log(spdlog::level::info); }

  bool quiet;
  std::shared_ptr<ConsoleSink> console;
  std::shared_ptr<ProgramSink> program = std::make_shared<ProgramSink>();
  std::shared_ptr<detail::LogFileSink> file;
  spdlog::logger to_files, to_all;
  std::mutex counting;
  Warnings warnings;
};

Logger::Logger(LoggerOptions options, ConsoleOptions console) : console_(console) {
  check_log_pattern(options.pattern);
  check<ConfigError>(options.max_file_size == 0 || options.max_files > 0, "logger.max_files",
                     "expected at least one rotated file with max_file_size, got 0");
  const std::string file = std::move(options.file);
  sinks_ = std::make_unique<Sinks>(options, console_);
  if (!file.empty()) {
    open_file(file);
  }
}

Logger::~Logger() { close(); }

void Logger::log(LogLevel level, std::string_view text) {
  sinks_->to_all.log(level_of(level), text);
  if (level == LogLevel::warning) {
    const std::lock_guard lock(sinks_->counting);
    if (sinks_->warnings.count++ == 0) {
      sinks_->warnings.first = text;
    }
  }
}

Logger::Warnings Logger::warnings() const {
  const std::lock_guard lock(sinks_->counting);
  return sinks_->warnings;
}

void Logger::log_to_file(std::string_view text, LogLevel level) { sinks_->to_files.log(level_of(level), text); }

void Logger::progress(std::string_view text) { live() ? log_to_file(text) : info(text); }

void Logger::open_file(const std::string& path) { sinks_->file->open(path); }

void Logger::set_sink(LogSink sink) { sinks_->program->set(std::move(sink)); }

bool Logger::should_log(LogLevel level) const { return sinks_->to_all.should_log(level_of(level)); }

bool Logger::live() const { return sinks_->informs() && console_.live(); }

bool Logger::has_file() { return sinks_->file->is_open(); }

void Logger::show(bool on_console) { sinks_->show(on_console); }

void Logger::flush() { sinks_->to_files.flush(); }

void Logger::close() { sinks_->file->close(); }

}  // namespace danling::inline v0
