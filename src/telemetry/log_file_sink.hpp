// LogFileSink: the sink of spdlog that writes the file of a Logger.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <spdlog/details/log_msg_buffer.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include <danling/core/error.hpp>
#include <danling/telemetry/logger.hpp>

#include <core/removed_file.hpp>
#include <core/signal_mask.hpp>

namespace danling::inline v0::detail {

/// Unlike the file sinks of spdlog, it keeps lines until it has a file, detects a full disk by the flush, reports the
/// first error instead of throwing, recreates a file that was removed and keeps writing when a rotation fails.
class LogFileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  using Report = std::function<void(const std::string& text)>;

  /// Has no file until open(): `options.file` must be empty.
  LogFileSink(LoggerOptions options, Report report)
      : base_sink(std::make_unique<spdlog::pattern_formatter>(options.pattern)),
        options_(std::move(options)),
        report_(std::move(report)) {}
  ~LogFileSink() override { close(); }
  LogFileSink(const LogFileSink&) = delete;
  LogFileSink& operator=(const LogFileSink&) = delete;

  void open(const std::string& path) {
    const std::lock_guard lock(mutex_);
    check<StateError>(file_ == nullptr, "logger.open_file", "expected one log file, got ", path, " in addition to ",
                      options_.file);
    file_ = std::fopen(path.c_str(), mode);
    check(file_ != nullptr, "logger.open", "expected a log file that can be written, got ", quote(std::strerror(errno)),
          " for ", path);
    options_.file = path;
    struct stat status{};
    bytes_ = ::fstat(::fileno(file_), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
    const FileSizeSignalMask quiet;
    for (const auto& message : kept_) {
      write(message);
    }
    kept_.clear();
  }

  bool is_open() {
    const std::lock_guard lock(mutex_);
    return file_ != nullptr;
  }

  void close() {
    flush();
    const std::lock_guard lock(mutex_);
    const FileSizeSignalMask quiet;
    if (std::FILE* file = std::exchange(file_, nullptr); file != nullptr) {
      std::fclose(file);
    }
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (file_ == nullptr) {
      if (options_.file.empty() && kept_bytes_ + message.payload.size() <= options_.keep) {
        kept_.emplace_back(message);
        kept_bytes_ += message.payload.size();
      }
      return;
    }
    const FileSizeSignalMask quiet;
    write(message);
    if (message.level >= spdlog::level::warn) {  // the process may hang or die after a warning
      flush_();
    }
  }

  void flush_() override {
    if (file_ == nullptr) {
      return;
    }
    const FileSizeSignalMask quiet;
    if (std::fflush(file_) != 0) {
      report_error(errno);
    } else if (const int reason = restore_removed(::fileno(file_), options_.file); reason != ENOENT) {
      report_error(reason);  // ENOENT: the folder is missing; retried when the run's directory is recreated
    }
  }

 private:
  static constexpr const char* mode = "a+e";  // a removed file is recreated with what is read from it

  void write(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    if (message.level >= spdlog::level::warn && !options_.context.empty()) {
      const std::string text =
          concat("[", options_.context, "] ", std::string_view(message.payload.data(), message.payload.size()));
      spdlog::details::log_msg with_context = message;
      with_context.payload = text;
      formatter_->format(with_context, line);
    } else {
      formatter_->format(message, line);
    }
    if (options_.max_file_size > 0 && bytes_ > 0 && bytes_ + line.size() > options_.max_file_size) {
      rotate();
    }
    bytes_ += line.size();
    errno = 0;
    if (std::fwrite(line.data(), 1, line.size(), file_) != line.size()) {
      report_error(errno);
    }
  }

  /// Returns run.1.log, run.2.log and so on, as spdlog and Debian's logrotate count; run.log for 0.
  std::filesystem::path rotated(std::size_t index) const {
    std::filesystem::path path = options_.file;
    return index == 0 ? path : path.replace_extension(concat(".", index, path.extension().string()));
  }

  void rotate() {
    flush_();
    bytes_ = 0;
    std::error_code failed;
    for (std::size_t index = options_.max_files; index > 0 && !failed; --index) {
      std::filesystem::rename(rotated(index - 1), rotated(index), failed);
      if (failed == std::errc::no_such_file_or_directory) {
        failed.clear();
      }
    }
    std::FILE* next = failed ? nullptr : std::fopen(options_.file.c_str(), mode);
    if (next == nullptr) {
      report_error(failed ? failed.value() : errno);
      return;
    }
    std::fclose(std::exchange(file_, next));
  }

  void report_error(int reason) {
    if (reason != 0 && !std::exchange(reported_, true)) {
      report_(concat("[logger.write] expected to write ", options_.file, ", got ", quote(std::strerror(reason)),
                     "; the run continues without a complete log file"));
    }
  }

  LoggerOptions options_;
  Report report_;
  std::FILE* file_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::vector<spdlog::details::log_msg_buffer> kept_;
  std::size_t kept_bytes_ = 0;
  bool reported_ = false;
};

}  // namespace danling::inline v0::detail
