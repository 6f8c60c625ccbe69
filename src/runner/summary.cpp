// summary.json: the status at the end of a run, and its results.
#include <cmath>

#include <danling/runner/early_stopping.hpp>
#include <danling/runner/torch_runner_base.hpp>

#include <runner/records.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {

void BaseRunner::write_summary(const std::string& status, const std::string& error, int signal, int exit_code) {
  sinks_->set_status(status, error);
  if (!Internals::Records(*this).is_open()) {
    return;
  }
  RunSummary summary{.status = status,
                     .error = error,
                     .signal = signal,
                     .exit_code = exit_code,
                     .epoch = state_.train.epoch,
                     .global_step = state_.train.global_step};
  fill_summary(summary);
  // Keeps the summary of the attempt that finished the run: a later one did nothing.
  services_->recorder->write_summary(std::move(summary), /*keep_finished=*/is_finished());
}

void BaseRunner::fill_summary(RunSummary& summary) const {
  const auto* saved = results_.saved_best();
  if (const auto* best = results_.best()) {
    summary.facts.emplace_back("best_index", round_number(best->index));
    summary.details["best"] = best->result;
  }
  if (saved != nullptr && !unsaved_best_.empty()) {
    summary.facts.emplace_back("unsaved_best", round_number(saved->index));
  }
  if (const auto* latest = results_.latest()) {
    summary.facts.emplace_back("latest_index", round_number(latest->index));
    summary.details["latest"] = latest->result;
  }
  if (!services_->exported_weights.empty()) {
    summary.facts.emplace_back("model_weights", services_->exported_weights);
  }
  if (std::isfinite(config().patience)) {
    summary.facts.emplace_back("rounds_without_best", early_stopping_->rounds_without_best());
  }
  if (services_->checkpoint_manager != nullptr) {
    if (const auto errors = services_->checkpoint_manager->checkpoint_health().error_count; errors > 0) {
      summary.facts.emplace_back("checkpoint_errors", errors);
    }
  }
}

void TorchRunnerBase::fill_summary(RunSummary& summary) const {
  BaseRunner::fill_summary(summary);
  if (skipped_updates_ > 0) {
    summary.facts.emplace_back("skipped_updates", skipped_updates_);
  }
  if (!test_result_.empty()) {
    summary.facts.emplace_back("test_weights", tested_weights_);
    summary.details["test"] = test_result_;
  }
}

}  // namespace danling::inline v0
