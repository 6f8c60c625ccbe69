// ResultHistory: the results of a run by epoch (or step), and the best of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/result.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Results in the order in which they were appended. The score of a result is the number `score_name` of the split
/// `score_split`. The metrics declare whether higher is better; otherwise lower is better for "loss", higher for all
/// others. Of equal scores the latest is best; a NaN or infinite score is never best.
class ResultHistory {
 public:
  struct Row {
    std::int64_t index;
    Result result;
  };

  /// Selects the score. Without a split there are no scores.
  void select(std::optional<std::string> score_split, std::string score_name,
              std::optional<bool> higher_is_better = std::nullopt);
  const std::optional<std::string>& score_split() const { return score_split_; }
  const std::string& score_name() const { return score_name_; }
  bool higher_is_better() const { return higher_is_better_; }

  /// Adds a row, or merges into the row with this index.
  void append(std::int64_t index, const Result& result);

  bool empty() const { return rows_.empty(); }
  const std::vector<Row>& rows() const { return rows_; }

  /// The score of a row, which may be NaN; empty if it has none.
  std::optional<double> score_of(const Row& row) const;
  /// Index and score of the rows that have a score.
  std::vector<std::pair<std::int64_t, double>> scores() const;
  /// The score of the last row that has one.
  std::optional<double> latest_score() const;
  /// Empty if no row has a finite score.
  std::optional<double> best_score() const;
  /// Index of the best row; 0 if there is none.
  std::int64_t best_index() const;
  /// Null if there are no rows.
  const Row* latest() const;
  /// Null if no row has a finite score.
  const Row* best() const;

  /// True when the score of the latest row equals the best within 1e-7 (times the score if it is below 1), or before
  /// the first result. False when the latest row has no score: no checkpoint may then be marked best.
  bool is_best() const;

  /// True when the latest score beats the last improved score by more than `min_delta`; differences below 1e-7 of the
  /// score are ties. The reference stays until a score improves, so small improvements add up. The first finite score
  /// improves.
  bool is_improved(double min_delta = 0.0) const;

  /// The row with this index, or null.
  const Row* find(std::int64_t index) const;
  /// The last row that was the best when it was appended (see is_best()): the row saved in `best`. Its score may be
  /// 1e-7 worse than that of best(). Null if no row was the best.
  const Row* saved_best() const;

  State state_dict() const;
  /// @throws StateError for a state that is not one of ResultHistory
  void load_state_dict(const State& state);

 private:
  bool is_better(double score, double than) const;
  /// Index and score of the rows that can be the best.
  std::vector<std::pair<std::int64_t, double>> finite_scores() const;

  std::vector<Row> rows_;
  std::optional<std::string> score_split_;
  std::string score_name_ = "loss";
  bool higher_is_better_ = false;
};

/// Converts a result to a state tree, and back.
State to_state(const Result& result);
Result result_from_state(const State& state);

}  // namespace danling::inline v0
