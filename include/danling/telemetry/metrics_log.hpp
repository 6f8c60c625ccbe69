// metrics.jsonl: every number of a run, one JSON object per line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <danling/core/result.hpp>

namespace danling::inline v0 {

/// One line. What differs from run to run though the numbers are the same (times, rates, memory) goes to `telemetry`.
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
/// Keys keep the order of the result, nested results are nested objects, a number is the shortest text that reads back
/// as the same double, and NaN and infinities are the strings "NaN", "Infinity" and "-Infinity" (JSON has no others).
/// Without "telemetry", two runs with the same numbers give the same bytes. Each line is one write: a crash leaves at
/// most the last line incomplete. Used by one thread of the main process.
class MetricsLog {
 public:
  /// Opens or creates the file; an incomplete last line, left by a crash, is cut off.
  /// @throws Error when it cannot be opened.
  explicit MetricsLog(const std::filesystem::path& path);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  /// @throws MetricError when a metric is named like one of the line's own keys, Error when the line cannot be written
  /// (what was written of it is cut off).
  void append(const MetricsLine& line);

  /// Bytes of whole lines so far.
  std::uint64_t offset() const { return offset_; }
  /// Cuts off what was written after `offset`, since a resumed run writes it again.
  /// @throws StateError when the file is shorter, or `offset` is not the end of a line.
  void truncate_to(std::uint64_t offset);
  /// Whole lines so far: what a checkpoint holds. Unlike bytes they do not depend on times and rates, so that the
  /// checkpoints of a resumed run equal those of an uninterrupted one.
  std::int64_t lines() const { return lines_; }
  /// Keeps the first `lines` lines. @throws StateError when the file has fewer.
  void truncate_to_lines(std::int64_t lines);
  /// Waits until all lines are on the disk; before a checkpoint that holds `lines()`.
  void sync();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t offset_ = 0;
  std::int64_t lines_ = 0;
  std::string buffer_;
};

}  // namespace danling::inline v0
