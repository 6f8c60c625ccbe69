// Early stopping: ends a run whose score stops improving.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include <danling/runner/callback.hpp>

namespace danling::inline v0 {

/// Ends training after `patience` consecutive rows of the results without a new best score; an equal or non-finite
/// score is no new best. With `patience` of the config the runner adds one.
class EarlyStopping : public Callback {
 public:
  explicit EarlyStopping(double patience = std::numeric_limits<double>::infinity()) : patience_(patience) {}

  std::string name() const override { return "early_stopping"; }
  void on_run_begin(const RunEvent& event) override;
  void on_result(const ResultEvent& event) override;

  /// Rows since the best one.
  std::int64_t rounds_without_best() const { return rounds_without_best_; }
  void set_rounds_without_best(std::int64_t rounds) { rounds_without_best_ = rounds; }
  bool out_of_patience() const;

 private:
  double patience_;
  std::int64_t rounds_without_best_ = 0;
};

}  // namespace danling::inline v0
