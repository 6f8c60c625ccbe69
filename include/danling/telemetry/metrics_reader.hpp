// Reads metrics.jsonl into curves of a bounded number of points.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace danling::inline v0 {

/// A value, and the step at which it was logged.
struct CurvePoint {
  double step = 0.0;
  double value = std::numeric_limits<double>::quiet_NaN();

  bool operator==(const CurvePoint&) const = default;
};

/// The values of neighbouring steps: the lowest and the highest as they were logged, and the sum of all.
struct CurveBucket {
  std::int64_t index = 0;  ///< the steps from `index * Curve::width` on, `width` of them
  CurvePoint lowest, highest;
  double sum = 0.0;
  std::uint64_t count = 0;  ///< finite values
  std::uint64_t non_finite = 0;
  CurvePoint first_non_finite;

  /// Of the finite values; NaN without any.
  double mean() const;
};

/// One number of a run over its steps. A curve with more steps than buckets is down-sampled: buckets of neighbouring
/// steps are merged in pairs, which keeps each extreme value.
struct Curve {
  std::string name;      ///< the path in a line, parts joined by dots: `loss`, `heads.0.acc`, `telemetry.samples_per_s`
  std::string split;     ///< empty for `epoch` and `telemetry.timestamp`, which belong to the whole run
  std::string mode;      ///< as split
  bool of_pass = false;  ///< the averages of whole passes, which are lines without "iteration"
  std::int64_t width = 1;
  std::vector<CurveBucket> buckets;  ///< by index, without empty ones
  CurvePoint last;                   ///< exact, also where it is not finite
  std::uint64_t count = 0;           ///< values, finite or not

  /// Adds a value; merges buckets when there are more than `max_buckets`.
  void add(CurvePoint point, std::size_t max_buckets);
  /// Adds the values of another curve, which follow those of this one.
  void append(const Curve& other, std::size_t max_buckets);
};

/// A line that could not be read.
struct DamagedLine {
  std::uint64_t number = 0;  ///< from 1
  std::string reason;
};

struct MetricsReaderOptions {
  /// Buckets of a curve, at least 2.
  std::size_t max_buckets = 1000;
  /// Further names are counted in `omitted`.
  std::size_t max_curves = 2000;
  /// Longer lists of numbers, and matrices, become no curves; they are counted in `omitted`.
  std::size_t max_list = 32;
  /// Threads that read a large file; 0: the processors, four at most.
  std::size_t threads = 0;
};

/// Curves of a file in the format of MetricsLog, which may still grow.
///
///     MetricsReader reader("metrics.jsonl");
///     while (watching) { if (reader.update()) { draw(reader.curves()); } }
///
/// Memory does not depend on the length of the file. Damaged lines are counted and skipped; an incomplete last line is
/// left for the next update. For one thread at a time.
class MetricsReader {
 public:
  using Options = MetricsReaderOptions;
  /// Opens nothing yet.
  explicit MetricsReader(std::filesystem::path path, Options options = {});
  ~MetricsReader();
  MetricsReader(MetricsReader&&) noexcept;
  MetricsReader& operator=(MetricsReader&&) noexcept;

  /// Reads the lines that were appended since the last call, or the whole file again if it was cut off, as by a resume,
  /// or replaced. Returns whether the curves changed; a file that does not exist has no curves.
  /// @throws Error when the file cannot be read.
  bool update();

  /// In the order of the first occurrence.
  const std::vector<Curve>& curves() const;
  /// Complete lines that were read, damaged ones included.
  std::uint64_t lines() const;
  std::uint64_t damaged() const;
  /// The first damaged lines, five at most.
  const std::vector<DamagedLine>& damaged_lines() const;
  /// Values that became no curve, because of the options' limits.
  std::uint64_t omitted() const;
  /// Bytes after the last complete line: a line that is being written, or was when the run died.
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
