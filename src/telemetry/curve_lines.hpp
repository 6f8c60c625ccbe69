// CurveLines: builds curves from lines of metrics.jsonl.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <danling/telemetry/metrics_reader.hpp>

namespace danling::inline v0::detail {

/// Adds lines to curves. The lines of a run have few forms; lines of one form differ only in their numbers. So a line
/// of a known form needs only a comparison of the text between its numbers, which takes a tenth of the time of a JSON
/// parser.
class CurveLines {
 public:
  explicit CurveLines(const MetricsReaderOptions& options) : options_(options) {}

  /// Adds one line without its line end.
  void add(std::string_view line);
  /// Counts a line that cannot be read.
  void add_damaged(std::string reason);
  /// Appends the curves of `other`, which read the following text.
  void append(const CurveLines& other);

  std::vector<MetricCurve> curves;
  std::uint64_t lines = 0;
  std::uint64_t damaged = 0;
  std::vector<DamagedLine> damaged_lines;
  std::uint64_t omitted = 0;

 private:
  class Parser;
  enum class Target : std::int64_t { none = -1, step = -2, omitted = -3 };
  struct Slot {
    std::string before;   ///< the text before the number
    std::int64_t target;  ///< an index of `curves`, or a Target
    double value = 0.0;
  };
  struct Form {
    std::vector<Slot> slots;
    std::string after;
  };

  bool add_known(std::string_view line, Form& form);
  void add_parsed(std::string_view line);
  void commit(const std::vector<Slot>& slots);
  std::int64_t curve_of(const std::string& name, const std::string& split, const std::string& mode, bool of_pass);

  MetricsReaderOptions options_;
  std::vector<Form> forms_;
  std::size_t last_form_ = 0;
  std::map<std::string, std::int64_t> index_;
};

}  // namespace danling::inline v0::detail
