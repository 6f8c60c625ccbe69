// Helpers for small files and directories: atomic writes, disk usage, results as JSON.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <danling/core/result.hpp>

namespace danling::inline v0 {

/// Replaces the file at `path` by `text` atomically: a reader sees the old or the new content, also after a crash.
/// Writes a temporary file in the same directory and waits until file and rename are on disk.
/// @throws Error with the path and the system's reason; the temporary file is removed, and the old content remains
/// unless only the last sync of the directory failed
void write_atomic(const std::filesystem::path& path, std::string_view text);

/// Creates a directory and its missing parents and returns its path. @throws Error with the system's reason
std::filesystem::path ensure_dir(const std::filesystem::path& directory);

/// The number of files below a directory and their bytes; counts the bytes of hard links once.
struct DiskUsage {
  std::int64_t files = 0;
  std::uint64_t bytes = 0;
};
/// Measures the files below `directory`; omits files that another process removes during the call. Ignores errors: 0
/// for a missing directory, a part where one cannot be read.
DiskUsage disk_usage(const std::filesystem::path& directory);

/// Reads a small file. @throws Error with the path and the system's reason
std::string read_text(const std::filesystem::path& path);

/// Formats `result` as indented JSON, with numbers rounded to `digits` decimal places (DanLing's RoundDict.round),
/// those below 0.1 to `digits` significant digits. JSON has no non-finite numbers: they become the strings "NaN",
/// "Infinity" and "-Infinity", which Python's float() and JavaScript's Number() parse.
std::string to_json(const Result& result, int digits = 8);

}  // namespace danling::inline v0
