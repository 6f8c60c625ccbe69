// Where in an epoch a run is, and what the pass in progress has measured: saved, restored.
#include <danling/runner/early_stopping.hpp>
#include <danling/runner/torch_runner_base.hpp>
#include <danling/telemetry/logger.hpp>

#include "runner/loop_frame.hpp"

namespace danling::inline v0 {

State TorchRunnerBase::loop_state() const {
  State out;
  out["split"] = loop_.split;
  out["iteration"] = loop_.iteration;
  out["last"] = to_state(loop_.last);
  out["first_step"] = loop_.first_step;
  out["target_step"] = loop_.target_step;
  out["round"] = to_state(loop_.round);
  if (!loop_.evaluated.empty()) {
    out["evaluated"] = State::List(loop_.evaluated.begin(), loop_.evaluated.end());
  }
  if (requests_.evaluation) {
    out["evaluation_asked"] = true;
  }
  out["rounds_without_best"] = early_stopping().rounds_without_best();
  out["skipped_updates"] = skipped_updates_;
  const bool inside = !loop_.split.empty();
  // Stopped before the split went on, its meters are still where the checkpoint put them.
  const Measurements now = !inside ? Measurements() : loop_.continuing || paused_ ? saved_ : measurements();
  out["meters"] = now.meters;
  out["metrics"] = now.metrics;
  out["losses"] = now.losses;
  return out;
}

TorchRunnerBase::Measurements TorchRunnerBase::measurements() const {
  State own = meters.state_dict();
  for (const auto& [name, meter] : meters) {
    if (meter.count() == 0) {
      own.map().erase(name);  // of an evaluation before, which a process that resumes has not seen
    }
  }
  return {.meters = std::move(own),
          .metrics = active_metrics_ != nullptr ? active_metrics_->state_dict() : State(),
          .losses = criterion.losses() != nullptr ? criterion.losses()->state_dict() : State()};
}

void TorchRunnerBase::restore_measurements(const Measurements& saved) {
  meters.load_state_dict(saved.meters);
  if (active_metrics_ != nullptr && !saved.metrics.is_null()) {
    try {
      active_metrics_->load_state_dict(saved.metrics);
    } catch (const StateError& error) {
      // Metrics may change between two starts; training does not depend on them.
      logger().warning(concat("the metrics are not those of the checkpoint and begin anew in the middle of ", split(),
                              ": ", error.what()));
      active_metrics_->reset();
    }
  }
  if (criterion.losses() != nullptr && !saved.losses.is_null()) {
    criterion.losses()->load_state_dict(saved.losses);
  }
}

void TorchRunnerBase::load_loop_state(const State& state) {
  LoopState loop;
  loop.split = state.at("split").string();
  loop.iteration = state.at("iteration").integer();
  loop.last = result_from_state(state.at("last"));
  loop.first_step = state.at("first_step").integer();
  loop.target_step = state.at("target_step").integer();
  loop.round = result_from_state(state.at("round"));
  if (const State* evaluated = state.find("evaluated")) {
    for (const State& split : evaluated->list()) {
      loop.evaluated.push_back(split.string());
    }
  }
  requests_.evaluation = state.find("evaluation_asked") != nullptr;
  early_stopping().set_rounds_without_best(state.at("rounds_without_best").integer());
  skipped_updates_ = skips_told_ = state.at("skipped_updates").integer();
  saved_.meters = state.at("meters");
  saved_.metrics = state.at("metrics");
  const State* losses = state.find("losses");  // not in the checkpoints of the first releases
  saved_.losses = losses != nullptr ? *losses : State();
  loop_ = std::move(loop);
  loop_.continuing = !loop_.split.empty() || !loop_.round.empty();
}

}  // namespace danling::inline v0
