// The file of a Logger, written through spdlog or without it.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <danling/telemetry/logger.hpp>

namespace danling::inline v0::detail {

/// Appends lines `2026-12-31 23:59:59.123 info     text`. Not thread-safe: the Logger holds a lock.
class LogFile {
 public:
  virtual ~LogFile();
  /// Returns errno of a failure, or 0; a full disk may appear only at the flush.
  virtual int write(LogLevel level, std::string_view text) = 0;
  virtual int flush() = 0;
};

/// Opens `path` for appending. @throws Error naming path and reason.
std::FILE* open_log_file(const std::string& path);
/// Flushes; recreates the file if someone removed it and its folder exists. Returns errno of a failure, or 0.
int flush_log_file(std::FILE* file, const std::filesystem::path& path);

std::unique_ptr<LogFile> open_plain_log_file(const std::string& path);
/// Null in a build without spdlog.
std::unique_ptr<LogFile> open_spdlog_log_file(const std::string& path);

}  // namespace danling::inline v0::detail
