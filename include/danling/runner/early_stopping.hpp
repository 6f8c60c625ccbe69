// Early stopping: ends a run whose score stops improving.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include <danling/runner/callback.hpp>

namespace danling::inline v0 {

/// Ends training after `patience` consecutive results with a score and without improvement. A score improves when it
/// beats the last improved one by more than `min_delta`; an equal or non-finite score does not. The runner adds this
/// callback with `patience` and `min_delta` of the config. The best checkpoint is independent of it: it holds the best
/// score, however small the improvement.
class EarlyStopping : public Callback {
 public:
  explicit EarlyStopping(double patience = std::numeric_limits<double>::infinity(), double min_delta = 0.0)
      : patience_(patience), min_delta_(min_delta) {}

  std::string name() const override { return "early_stopping"; }
  void on_run_begin(const RunEvent& event) override;
  void on_result(const ResultEvent& event) override;

  /// Results with a score since the last improvement.
  std::int64_t rounds_without_best() const { return rounds_without_best_; }
  void set_rounds_without_best(std::int64_t rounds) { rounds_without_best_ = rounds; }
  /// True when this number has reached `patience`.
  bool out_of_patience() const;

 private:
  double patience_;
  double min_delta_;
  std::int64_t rounds_without_best_ = 0;
};

}  // namespace danling::inline v0
