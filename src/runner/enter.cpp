// Entering a split: sets the modes of the models and selects the metrics.
#include <algorithm>
#include <utility>

#include <danling/runner/torch_runner_base.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/loss_terms.hpp>
#include <runner/services.hpp>
#include <runner/step_tapes.hpp>

namespace danling::inline v0 {

void TorchRunnerBase::enter(RunnerMode mode, std::string_view split) {
  mode_ = mode;
  split_ = split;
  services().progress->enter(to_string(mode), split);
  if (!pin_warning_.empty()) {
    logger().warning(std::exchange(pin_warning_, std::string()));
  }
  set_training(mode == RunnerMode::train);
  const auto& chosen = mode == RunnerMode::train ? train_metrics : evaluate_metrics;
  active_metrics_ = mode == RunnerMode::infer ? nullptr : chosen != nullptr ? chosen.get() : metrics.get();
  meters.reset();
  if (active_metrics_ != nullptr) {
    active_metrics_->reset();
  }
  if (criterion.losses() != nullptr) {
    criterion.losses()->reset();
  }
  if (loss_terms_ != nullptr) {
    loss_terms_->set_weights(state_.train.global_step);
  }
  predicted_metrics_ = dynamic_cast<Metrics*>(active_metrics_);
  bind_typed_components();
  if (tapes_ != nullptr) {
    tapes_->begin_loop();
  }
}

void TorchRunnerBase::set_training(bool training) {
  model.train(training);
  ema.train(training);
  for (auto& [name, handle] : models) {
    const bool learns = std::any_of(learners_.begin(), learners_.end(),
                                    [&name = name](const Learner& learner) { return learner.name == name; });
    handle.train(training && (learns || handle.named_parameters().empty()));
  }
}

bool TorchRunnerBase::any_script() const {
  return evaluation_model().is_script() || teacher.is_script() ||
         std::any_of(models.begin(), models.end(), [](const auto& item) { return item.second.is_script(); });
}

void TorchRunnerBase::fail_metrics() const {
  fail<StateError>("runner.update_metrics",
                   "expected metrics of predictions and targets (Metrics) or over this runner's batch type "
                   "(BatchMetrics), got another kind in split ",
                   quote(split_), "; update them in your train_step and evaluate_step");
}

}  // namespace danling::inline v0
