// The results of a run by epoch (or step), and which of them is best.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/result.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Results in the order in which they were appended. The score of a result is the number `score_name` of its split
/// `score_split`. The metrics declare whether higher is better; where they do not, lower is better for "loss", higher
/// for all others. Among equals the latest is best; a NaN or infinite score never is.
class ResultBook {
 public:
  struct Row {
    std::int64_t index;
    Result result;
  };

  /// Chooses the score. Without a split there are no scores.
  void select(std::optional<std::string> score_split, std::string score_name,
              std::optional<bool> higher_is_better = std::nullopt);
  const std::optional<std::string>& score_split() const { return score_split_; }
  const std::string& score_name() const { return score_name_; }
  bool higher_is_better() const { return higher_is_better_; }

  /// Adds a row, or merges into the row that has this index.
  void append(std::int64_t index, const Result& result);

  bool empty() const { return rows_.empty(); }
  const std::vector<Row>& rows() const { return rows_; }

  /// The score of a row, which may be NaN; nothing where it has none.
  std::optional<double> score_of(const Row& row) const;
  /// The rows that have a score, with it.
  std::vector<std::pair<std::int64_t, double>> scores() const;
  std::optional<double> latest_score() const;
  std::optional<double> best_score() const;
  /// The index of the best row; 0 when there is none.
  std::int64_t best_index() const;
  const Row* latest() const;
  /// Null when no row has a score that can be the best.
  const Row* best() const;

  /// Whether the score of the latest row equals the best within 1e-7; true before the first result, false when it has
  /// none (no checkpoint may then be marked best).
  bool is_best() const;

  /// Whether the latest score improves on the last one that did by more than `min_delta`; differences below 1e-7 are
  /// ties. Small improvements add up: the score that they are compared with stays. The first finite score improves.
  bool is_improved(double min_delta = 0.0) const;

  /// The row with this index; null where there is none.
  const Row* find(std::int64_t index) const;
  /// The last row that was the best when it was appended (see is_best()): the row in `best`. Its score may be 1e-7
  /// worse than that of best(); null where no row was the best.
  const Row* saved_best() const;

  State state_dict() const;
  /// @throws StateError when the state is not one of results.
  void load_state_dict(const State& state);

 private:
  bool is_better(double score, double than) const;
  /// The scores that can be the best.
  std::vector<std::pair<std::int64_t, double>> finite_scores() const;

  std::vector<Row> rows_;
  std::optional<std::string> score_split_;
  std::string score_name_ = "loss";
  bool higher_is_better_ = false;
};

/// A result as a state tree, and back.
State to_state(const Result& result);
Result result_from_state(const State& state);

}  // namespace danling::inline v0
