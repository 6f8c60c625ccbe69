// Records of a run for the loops: starts them with training, appends results, selects the score.
#pragma once

#include <cstdint>
#include <optional>

#include <danling/runner/base_runner.hpp>

#include <runner/recorder.hpp>

namespace danling::inline v0 {

class BaseRunner::Internals::Records {
 public:
  explicit Records(BaseRunner& runner) : runner_(runner) {}

  /// Sets up the run's directory, once: creates log, metadata and results, and moves an earlier attempt to `attempts/`.
  /// Does nothing with `record: false` and on ranks that write nothing.
  void begin();
  /// With `ft`, in a new generation: the main process takes over the records of a dead one. Collective.
  void enter_generation();
  bool is_open() const;
  /// Appends a result, writes the result files and logs a line. On a write error logs a warning and retries with the
  /// next result; with `checkpoint.on_error: stop` throws Error.
  void append(std::int64_t index, const Result& result);
  /// Retries failed writes of results and metrics; with `again`, always writes the results. Called at the end of
  /// train(). @throws Error when a write fails again
  void retry_writes(bool again = false);

  /// Sets the name and direction of the score, as far as known.
  void select_score();
  std::optional<bool> known_score_direction() const;  ///< of `score_name`; `score_mode` takes precedence
  /// Logs the assumed direction of the score if neither score_mode nor a metric declares it.
  void log_guessed_score() const;

 private:
  detail::RecordedConfig recorded_config() const;
  bool open_recorder();
  void open_rank_log();
  void warn_invisible_directory(const std::vector<std::string>& folders, const std::filesystem::path& log);
  void take_over();
  void adopt_history();

  BaseRunner& runner_;
};

}  // namespace danling::inline v0
