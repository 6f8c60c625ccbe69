// The records of a run, as the loops use them: begun when training is, a row for each result, the score.
#pragma once

#include <cstdint>
#include <optional>

#include <danling/runner/base_runner.hpp>

namespace danling::inline v0 {

class BaseRunner::Records {
 public:
  explicit Records(BaseRunner& runner) : runner_(runner) {}

  /// Takes the run's directory, once: logs, metadata and results appear, and an earlier attempt moves aside. Does
  /// nothing on ranks that write nothing and with `record: false`.
  void begin();
  bool is_open() const;
  /// Appends a result, writes the result files and logs a line. A file that cannot be written is a warning and is
  /// written with the next result; with `checkpoint.on_error: stop` it is an Error.
  void append(std::int64_t index, const Result& result);
  /// Writes what of the results and metrics could not be written so far; with `again`, the results in any case.
  /// train() calls it at its end. @throws Error when it still cannot be written.
  void settle(bool again = false);

  /// Which number is the score, and which way it is better, as far as that is known by now.
  void select_score();
  std::optional<bool> known_score_direction() const;  ///< of `score_name`; `score_mode` goes first
  /// Logs which way the score is taken to be better where neither score_mode nor a metric says it.
  void log_guessed_score() const;

 private:
  void adopt_history();

  BaseRunner& runner_;
};

}  // namespace danling::inline v0
