// MetricsLog: writes metrics.jsonl, every number of a run, one JSON object per line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <danling/core/result.hpp>

namespace danling::inline v0 {

/// One line. `telemetry` contains the values that differ between equal runs: times, rates, memory.
struct MetricsLine {
  std::string_view split;
  std::string_view mode;
  std::optional<std::int64_t> epoch;
  std::int64_t global_step = 0;
  std::optional<std::int64_t> iteration;
  const Result& metrics;
  const Result& telemetry;
};

/// Appends lines like
///
///     {"split":"train","mode":"train","epoch":2,"global_step":180,"iteration":50,"loss":0.25,"telemetry":{"time":0.01}}
///
/// Keys have the order of the result, and nested results are nested objects. A number is the shortest text that parses
/// to the same double; NaN and infinities are the strings "NaN", "Infinity" and "-Infinity", since JSON has no such
/// numbers. Except for "telemetry", equal runs write equal bytes. Each line is one write, so a crash leaves at most the
/// last line incomplete. One thread of the main process uses the log.
///
/// If a write fails (a full disk), the line is kept in memory and written before the next one, so the file becomes
/// complete when there is space again. At most 16 MiB are kept; further lines are lost, as the error of append() says.
class MetricsLog {
 public:
  /// Opens or creates the file; removes an incomplete last line, left by a crash.
  /// @throws Error if the file cannot be opened
  explicit MetricsLog(const std::filesystem::path& path);
  /// Retries the kept lines; lines that still cannot be written are lost.
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  /// Appends a line. @throws MetricError if a metric has the name of a reserved key of the line; Error if the write
  /// fails: the line is kept and written with the next one, or, as the error then says, lost because too much is kept
  void append(const MetricsLine& line);
  /// Writes the kept lines; rewrites the whole file if it was removed. @throws Error if the write fails again
  void flush();
  /// Number of lines that are not in the file yet, and their text. A checkpoint stores both.
  std::int64_t num_unwritten_lines() const { return num_unwritten_; }
  const std::string& unwritten_lines() const { return kept_; }

  /// Size of the complete lines in the file, in bytes.
  std::uint64_t offset() const { return offset_; }
  /// Truncates the file to `offset` and drops the kept lines, since a resumed run writes them again.
  /// @throws StateError if the file is shorter or `offset` is not the end of a line
  void truncate_to(std::uint64_t offset);
  /// Number of complete lines in the file. A checkpoint stores it plus the kept lines. Unlike bytes it does not depend
  /// on times and rates, so the checkpoints of a resumed run equal those of an uninterrupted run.
  std::int64_t lines() const { return lines_; }
  /// Truncates the file to its first `lines` lines. @throws StateError if the file has fewer
  void truncate_to_lines(std::int64_t lines);
  /// Restores the position of a checkpoint that counted `lines` lines, the last of which, `kept`, were not in the file
  /// at the save. Removes later lines, and writes the missing lines of `kept` or keeps them again. Returns the number
  /// of lines that neither the file nor `kept` contains.
  std::int64_t restore(std::int64_t lines, std::string_view kept);
  /// Writes the kept lines and syncs the file to disk. @throws Error
  void sync();

  const std::filesystem::path& path() const { return path_; }

 private:
  /// Returns errno of a failure, or 0.
  int write_kept() noexcept;

  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t offset_ = 0;
  std::int64_t lines_ = 0;
  std::string buffer_;
  std::string kept_;
  std::int64_t num_unwritten_ = 0;
  /// True if the file has a partial line behind `offset_` because truncation failed.
  bool torn_ = false;
};

}  // namespace danling::inline v0
