#include <danling/telemetry/logger.hpp>

#include <cstring>
#include <utility>

#include <danling/core/error.hpp>

#include <core/signal_mask.hpp>
#include <telemetry/log_file.hpp>

namespace danling::inline v0 {

Logger::Logger(LoggerOptions options, ConsoleOptions console) : options_(std::move(options)), console_(console) {
  if (!options_.file.empty()) {
    open_file(options_.file);
  }
}

Logger::~Logger() { close(); }

bool Logger::has_file() {
  const std::lock_guard lock(mutex_);
  return file_ != nullptr;
}

const char* Logger::backend() {
#if DANLING_WITH_SPDLOG
  return "spdlog";
#else
  return "plain";
#endif
}

void Logger::open_file(const std::string& path) {
  const std::lock_guard lock(mutex_);
  check<StateError>(file_ == nullptr, "logger.open_file", "expected one log file, got ", path, " in addition to ",
                    options_.file);
  file_ = detail::open_spdlog_log_file(path);
  if (file_ == nullptr) {
    file_ = detail::open_plain_log_file(path);
  }
  options_.file = path;
  const detail::FileSizeSignalMask quiet;
  for (const auto& [level, text] : kept_) {
    file_->write(level, text);  // the next line reports an error
  }
  kept_.clear();
}

void Logger::set_sink(LogSink sink) {
  const std::lock_guard lock(mutex_);
  sink_ = std::move(sink);
}

void Logger::log(LogLevel level, std::string_view text) {
  write_file(level, text);
  if (level == LogLevel::info ? informs() : options_.console) {
    print(level, text);
  }
}

void Logger::progress(std::string_view text) {
  write_file(LogLevel::info, text);
  if (informs() && !console_.live()) {
    print(LogLevel::info, text);
  }
}

void Logger::log_to_file(std::string_view text) { write_file(LogLevel::info, text); }

void Logger::print(LogLevel level, std::string_view text) {
  if (level == LogLevel::info) {
    console_.print(text);
    return;
  }
  const bool error = level == LogLevel::error;
  const bool color = console_.color(Console::Stream::error);
  console_.print(concat(color ? (error ? "\x1b[31m" : "\x1b[33m") : "",
                        error ? "error:" : "warning:", color ? "\x1b[0m " : " ", text),
                 Console::Stream::error);
}

void Logger::write_file(LogLevel level, std::string_view text) {
  int reason = 0;
  {
    const std::lock_guard lock(mutex_);
    if (sink_) {
      sink_(level, text);
    }
    if (file_ == nullptr) {
      if (options_.file.empty() && kept_bytes_ + text.size() <= options_.keep) {
        kept_.emplace_back(level, text);
        kept_bytes_ += text.size();
      }
      return;
    }
    const detail::FileSizeSignalMask quiet;
    if (level == LogLevel::info || options_.context.empty()) {
      reason = file_->write(level, text);
    } else {
      reason = file_->write(level, concat("[", options_.context, "] ", text));
    }
    if (level != LogLevel::info && reason == 0) {  // the process may hang or die after a warning
      reason = file_->flush();
    }
    if (reason == 0 || std::exchange(complained_, true)) {
      return;
    }
  }
  complain(std::strerror(reason));
}

void Logger::complain(const std::string& reason) {
  print(LogLevel::warning, concat("[logger.write] expected to write ", options_.file, ", got ", quote(reason),
                                  "; the run continues without a complete log file"));
}

void Logger::flush() {
  int reason = 0;
  {
    const std::lock_guard lock(mutex_);
    const detail::FileSizeSignalMask quiet;
    reason = file_ == nullptr ? 0 : file_->flush();
    if (reason == 0 || std::exchange(complained_, true)) {
      return;
    }
  }
  complain(std::strerror(reason));
}

void Logger::close() {
  flush();
  const std::lock_guard lock(mutex_);
  const detail::FileSizeSignalMask quiet;
  file_.reset();
}

}  // namespace danling::inline v0
