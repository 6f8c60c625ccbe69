// What the files of an earlier start say of how far it came.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include <danling/telemetry/logger.hpp>

namespace danling::inline v0::detail {

/// Where a run ends.
struct RunBoundary {
  std::optional<std::int64_t> epochs;
  std::int64_t steps = 0;  ///< where there are no epochs
  double patience = 0.0;
};

/// Reads the result files and metrics.jsonl of a run's directory. A number that someone spoilt is a warning, and counts
/// as absent. The first programs wrote the index of an epoch from 0, as "27.0"; it is read as the 28th.
class EarlierRun {
 public:
  EarlierRun(std::filesystem::path directory, Logger& logger) : directory_(std::move(directory)), logger_(logger) {}

  /// Whether the last start that ended said that the run was finished.
  bool says_finished() const;
  /// Whether the run, which ended, has done what is asked for; one whose boundary was moved has not.
  bool is_done(const RunBoundary& boundary) const;
  /// Whether nothing is left to do: its last save kept the model alone, and what followed it was done too. A best state
  /// that only the last epoch can give anew is left.
  bool is_complete(const RunBoundary& boundary) const;
  /// Of the last line of metrics: a model alone has no counters.
  std::int64_t last_global_step() const;
  std::int64_t last_epoch() const;

 private:
  struct Number {
    std::int64_t value;
    bool decimal;  ///< a point follows
  };
  std::optional<Number> number_in(const char* file, std::string_view mark) const;
  /// The epoch, from 1, or step of a result.
  std::optional<std::int64_t> index_in(const char* file, std::string_view mark, bool by_epochs) const;

  std::filesystem::path directory_;
  Logger& logger_;
};

}  // namespace danling::inline v0::detail
