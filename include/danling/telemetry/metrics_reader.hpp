// MetricsReader: reads metrics.jsonl into curves with a bounded number of points.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace danling::inline v0 {

/// A value and the step at which it was logged.
struct CurvePoint {
  double step = 0.0;
  double value = std::numeric_limits<double>::quiet_NaN();

  bool operator==(const CurvePoint&) const = default;
};

/// The values of neighbouring steps: the lowest and the highest point, and the sum.
struct CurveBucket {
  std::int64_t index = 0;  ///< covers `MetricCurve::width` steps from `index * MetricCurve::width` on
  CurvePoint lowest, highest;
  double sum = 0.0;
  std::uint64_t count = 0;  ///< number of finite values
  std::uint64_t non_finite = 0;
  CurvePoint first_non_finite;

  /// Mean of the finite values; NaN if there are none.
  double mean() const;
};

/// One number of a run over its steps. If there are more steps than buckets, the curve is down-sampled: neighbouring
/// buckets are merged in pairs, which preserves the extreme values.
struct MetricCurve {
  std::string name;      ///< the path in a line, joined by dots: `loss`, `heads.0.acc`, `telemetry.samples_per_s`
  std::string split;     ///< empty for `epoch` and `telemetry.timestamp`, which belong to the whole run
  std::string mode;      ///< as split
  bool of_pass = false;  ///< averages of whole passes, from lines without "iteration"
  std::int64_t width = 1;
  std::vector<CurveBucket> buckets;  ///< sorted by index; empty buckets are omitted
  CurvePoint last;                   ///< the exact last point, finite or not
  std::uint64_t count = 0;           ///< number of values, finite or not

  /// Adds a value; merges buckets if there are more than `max_buckets`.
  void add(CurvePoint point, std::size_t max_buckets);
  /// Appends another curve, whose values follow those of this one.
  void append(const MetricCurve& other, std::size_t max_buckets);
};

/// A line that could not be read.
struct DamagedLine {
  std::uint64_t number = 0;  ///< from 1
  std::string reason;
};

struct MetricsReaderOptions {
  /// Buckets per curve, at least 2.
  std::size_t max_buckets = 1000;
  /// Curves; values of further names are only counted in `omitted`.
  std::size_t max_curves = 2000;
  /// Length of lists that become curves; longer lists and matrices are only counted in `omitted`.
  std::size_t max_list = 32;
  /// Threads that read a large file; 0: one per processor, at most four.
  std::size_t threads = 0;
};

/// Reads the curves of a metrics.jsonl, which may still grow.
///
///     MetricsReader reader("metrics.jsonl");
///     while (watching) { if (reader.update()) { draw(reader.curves()); } }
///
/// Memory does not depend on the length of the file. Counts and skips damaged lines; leaves an incomplete last line for
/// the next update. One thread at a time.
class MetricsReader {
 public:
  using Options = MetricsReaderOptions;
  /// Does not open the file.
  explicit MetricsReader(std::filesystem::path path, Options options = {});
  ~MetricsReader();
  MetricsReader(MetricsReader&&) noexcept;
  MetricsReader& operator=(MetricsReader&&) noexcept;

  /// Reads the lines that were appended since the last call, or the whole file again if it was truncated (as by a
  /// resume) or replaced. Returns true if lines were read or discarded. A file that does not exist has no curves.
  /// @throws Error if the file cannot be read; the curves may then be empty, and the next call reads the whole file
  bool update();

  /// The curves in the order of their first occurrence.
  const std::vector<MetricCurve>& curves() const;
  /// Number of complete lines read, including damaged lines.
  std::uint64_t lines() const;
  std::uint64_t damaged() const;
  /// The first damaged lines, at most five.
  const std::vector<DamagedLine>& damaged_lines() const;
  /// Number of values that the options' limits exclude from curves.
  std::uint64_t omitted() const;
  /// Bytes after the last complete line: a line in progress, or one left by a crash.
  std::uint64_t incomplete_bytes() const;

 private:
  struct Position;
  struct Content;
  std::filesystem::path path_;
  Options options_;
  std::unique_ptr<Position> position_;
  std::unique_ptr<Content> content_;
};

}  // namespace danling::inline v0
