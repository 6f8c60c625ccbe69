// Ends a run whose score gets no better.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include <danling/runner/callback.hpp>

namespace danling::inline v0 {

/// After `patience` rows of the results in a row that are not better than all before; an equal score is not better, nor
/// is one that is no finite number. The runner adds one with `patience` of the config.
class EarlyStopping : public Callback {
 public:
  explicit EarlyStopping(double patience = std::numeric_limits<double>::infinity()) : patience_(patience) {}

  std::string name() const override { return "early_stopping"; }
  void on_run_begin(const RunEvent& event) override;
  void on_result(const ResultEvent& event) override;

  /// Rows since the best one.
  std::int64_t rounds_without_best() const { return rounds_without_best_; }
  void set_rounds_without_best(std::int64_t rounds) { rounds_without_best_ = rounds; }

 private:
  bool out_of_patience() const;

  double patience_;
  std::int64_t rounds_without_best_ = 0;
};

}  // namespace danling::inline v0
