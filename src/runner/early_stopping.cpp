#include <danling/runner/early_stopping.hpp>

#include <cmath>

#include <danling/core/error.hpp>
#include <danling/runner/base_runner.hpp>

namespace danling::inline v0 {

bool EarlyStopping::out_of_patience() const {
  return rounds_without_best_ > 0 && static_cast<double>(rounds_without_best_) >= patience_;
}

void EarlyStopping::on_run_begin(const RunEvent& event) {
  if (out_of_patience()) {
    event.runner.end_training("early stopping has ended the run");
  }
}

void EarlyStopping::on_result(const ResultEvent& event) {
  // A program may append results to a row in parts, and results without the score's split.
  const auto score = event.results.score_of({event.index, event.result});
  if (!score) {
    return;
  }
  rounds_without_best_ = event.results.is_improved(min_delta_) ? 0 : rounds_without_best_ + 1;
  if (out_of_patience()) {
    event.runner.end_training(concat("early stop, ", rounds_without_best_,
                                     event.runner.is_step_mode() ? " evaluations" : " epochs", " without a better ",
                                     event.results.score_name(),
                                     min_delta_ > 0 ? concat(" (by more than ", min_delta_, ")") : std::string(),
                                     std::isnan(*score) ? ": the last is nan" : ""));
  }
}

}  // namespace danling::inline v0
