// Progress of an earlier attempt, read from its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include <danling/telemetry/logger.hpp>

namespace danling::inline v0::detail {

/// Length of a run.
struct RunBoundary {
  std::optional<std::int64_t> epochs;
  std::int64_t steps = 0;  ///< if there are no epochs
  double patience = 0.0;
};

/// Reads the result files and metrics.jsonl of a run's directory. Warns about a malformed number and ignores it. The
/// first releases wrote the index of an epoch from 0, as "27.0"; it is read as epoch 28.
class EarlierRun {
 public:
  EarlierRun(std::filesystem::path directory, Logger& logger) : directory_(std::move(directory)), logger_(logger) {}

  /// True when summary.json of the last attempt has the status "finished".
  bool has_finished_status() const;
  /// True when the ended run reached `boundary`, which may have changed since.
  bool is_done(const RunBoundary& boundary) const;
  /// True when the run is finished and the best state is on disk, or cannot be recreated by repeating the last epoch.
  bool is_complete(const RunBoundary& boundary) const;
  /// From the last line of metrics, since a file with only the model has no counters.
  std::int64_t last_global_step() const;
  std::int64_t last_epoch() const;

 private:
  struct Number {
    std::int64_t value;
    bool decimal;  ///< a decimal point follows
  };
  std::optional<Number> number_in(const char* file, std::string_view mark) const;
  /// The epoch, from 1, or the step of a result.
  std::optional<std::int64_t> index_in(const char* file, std::string_view mark, bool by_epochs) const;

  std::filesystem::path directory_;
  Logger& logger_;
};

}  // namespace danling::inline v0::detail
