// Small files that are either whole or not there.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <danling/core/result.hpp>

namespace danling::inline v0 {

/// Replaces the file at `path` by `text` in one step: a reader sees the old content or the new one, also after a crash.
/// Writes a temporary file beside it, waits until both it and the renaming are on the disk.
/// @throws Error with the path and the system's reason; the old content and no temporary file remain.
void write_atomic(const std::filesystem::path& path, std::string_view text);

/// Makes a directory, and those above it, where there is none. @return it. @throws Error with the system's reason
std::filesystem::path ensure_dir(const std::filesystem::path& directory);

/// Removes what calls of write_atomic in `folder` left whose process died in them. For the owner of the folder alone:
/// a call in progress loses its file too.
void remove_temporaries(const std::filesystem::path& folder) noexcept;

/// The content of a small file. @throws Error with the path and the system's reason.
std::string read_text(const std::filesystem::path& path);

/// `result` as indented JSON, numbers rounded to `digits` decimal places (RoundDict.round). JSON has no word for what
/// is not a finite number: such a value becomes the string "NaN", "Infinity" or "-Infinity", which Python's float() and
/// JavaScript's Number() read back.
std::string to_json(const Result& result, int digits = 8);

}  // namespace danling::inline v0
