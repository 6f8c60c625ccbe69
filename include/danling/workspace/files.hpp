// Atomic writes of small files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <danling/core/result.hpp>

namespace danling::inline v0 {

/// Atomically replaces the file at `path` by `text`: a reader sees the old content or the new one, also after a crash.
/// Writes a temporary file beside it, and waits until it and the rename are on disk.
/// @throws Error with the path and the system's reason; the old content and no temporary file remain.
void write_atomic(const std::filesystem::path& path, std::string_view text);

/// Creates a directory and its missing parents. @return it. @throws Error with the system's reason
std::filesystem::path ensure_dir(const std::filesystem::path& directory);

/// Removes temporary files in `folder` of processes that died in write_atomic. For the owner of the folder only:
/// a call in progress loses its file too.
void remove_temporaries(const std::filesystem::path& folder) noexcept;

/// Files below a directory, and their bytes; several hard links to a file take its space once.
struct DiskUsage {
  std::int64_t files = 0;
  std::uint64_t bytes = 0;
};
/// What another process removes meanwhile is left out.
DiskUsage disk_usage(const std::filesystem::path& directory);

/// The content of a small file. @throws Error with the path and the system's reason.
std::string read_text(const std::filesystem::path& path);

/// `result` as indented JSON, numbers rounded to `digits` decimal places (RoundDict.round). JSON cannot represent
/// non-finite numbers: such a value becomes the string "NaN", "Infinity" or "-Infinity", which Python's float() and
/// JavaScript's Number() read back.
std::string to_json(const Result& result, int digits = 8);

}  // namespace danling::inline v0
