// LogFile: the file of a Logger, written by spdlog or without it.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <danling/telemetry/logger.hpp>

namespace danling::inline v0::detail {

/// Appends lines `2026-12-31 23:59:59.123 info     text`. Not thread-safe; the Logger locks.
class LogFile {
 public:
  virtual ~LogFile();
  /// Returns 0, or errno on failure; a full disk may be detected only by the flush.
  virtual int write(LogLevel level, std::string_view text) = 0;
  virtual int flush() = 0;
};

/// Opens `path` for appending. @throws Error with path and reason
std::FILE* open_log_file(const std::string& path);
/// Flushes the file; recreates it if it was removed and its folder exists. Returns 0, or errno on failure.
int flush_log_file(std::FILE* file, const std::filesystem::path& path);

std::unique_ptr<LogFile> open_plain_log_file(const std::string& path);
/// Returns null in a build without spdlog.
std::unique_ptr<LogFile> open_spdlog_log_file(const std::string& path);

}  // namespace danling::inline v0::detail
