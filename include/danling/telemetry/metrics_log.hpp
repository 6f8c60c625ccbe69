// metrics.jsonl: every number of a run, one JSON object per line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <danling/core/result.hpp>

namespace danling::inline v0 {

/// One line. Values that differ between runs with the same numbers (times, rates, memory) go to `telemetry`.
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
///
///     {"split":"train","mode":"train","epoch":2,"global_step":180,"iteration":50,"loss":0.25,"telemetry":{"time":0.01}}
///
/// Keys keep the order of the result, nested results are nested objects, a number is the shortest text that reads back
/// as the same double, and NaN and infinities are the strings "NaN", "Infinity" and "-Infinity" (JSON has no others).
/// Without "telemetry", two runs with the same numbers write the same bytes. Each line is one write: a crash leaves at
/// most the last line incomplete. Used by one thread of the main process.
///
/// A line that could not be written (a full disk) is kept in memory and written before the next one, so that the file
/// is complete once there is space again. At most 16 MiB are kept, and the line that exceeds them.
class MetricsLog {
 public:
  /// Opens or creates the file; cuts off an incomplete last line, left by a crash.
  /// @throws Error when it cannot be opened.
  explicit MetricsLog(const std::filesystem::path& path);
  /// Retries writing the kept lines; those that still fail are lost.
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  /// @throws MetricError when a metric has the name of one of the line's reserved keys, Error when the line cannot be
  /// written: it is kept and written with the next one, unless too much is kept already, which the error then states.
  void append(const MetricsLine& line);
  /// Writes the kept lines; rewrites the whole file if someone removed it. @throws Error when the lines still cannot be
  /// written.
  void flush();
  /// Number of lines that are not in the file yet, and their text: a checkpoint that counts them stores them.
  std::int64_t num_unwritten_lines() const { return num_unwritten_; }
  const std::string& unwritten_lines() const { return kept_; }

  /// Size of the complete lines in the file, in bytes.
  std::uint64_t offset() const { return offset_; }
  /// Truncates the file to `offset`, and drops the kept lines, since a resumed run writes them again.
  /// @throws StateError when the file is shorter, or `offset` is not the end of a line.
  void truncate_to(std::uint64_t offset);
  /// Number of complete lines in the file; a checkpoint stores it, with the kept ones. Unlike bytes they do not depend
  /// on times and rates, so that the checkpoints of a resumed run equal those of an uninterrupted one.
  std::int64_t lines() const { return lines_; }
  /// Truncates to the first `lines` lines. @throws StateError when the file has fewer.
  void truncate_to_lines(std::int64_t lines);
  /// Restores the position of a checkpoint that counted `lines` lines, the last of which, `kept`, were not in the file
  /// then:
  /// cuts off later lines and writes the missing ones of `kept`, or keeps them again. Returns the number of lines that
  /// neither the file nor `kept` has.
  std::int64_t restore(std::int64_t lines, std::string_view kept);
  /// Writes the kept lines, and waits until all are on disk. @throws Error
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
  /// A partial line behind `offset_` could not be cut off.
  bool torn_ = false;
};

}  // namespace danling::inline v0
