// Which weights a run is tested and exported with: the last, or those of the best result.
#include <utility>

#include <danling/checkpoint/manager.hpp>
#include <danling/runner/torch_runner_base.hpp>

#include "runner/services.hpp"

namespace danling::inline v0 {

bool BaseRunner::has_best_weights() const {
  const auto* best = results_.saved_best();
  return best != nullptr && (is_step_mode() || at_boundary()) &&
         round_number(best->index) == (is_step_mode() ? state_.train.global_step : state_.train.epoch);
}

std::string BaseRunner::weights_name() const {
  const auto reached = is_step_mode() ? state_.train.global_step : state_.train.epoch;
  return concat(is_step_mode() ? "step " : "epoch ", reached, has_best_weights() ? " (last, best)" : " (last)");
}

std::optional<std::pair<State, std::string>> BaseRunner::best_weights(std::string_view key) {
  if (has_best_weights()) {
    return std::nullopt;
  }
  std::string problem = "got none";
  try {
    if (const auto found = checkpoint_manager().load_best()) {
      State weights;
      for (const auto* part : {"model", "ema"}) {
        if (const State* own = found->find(part); own != nullptr && !own->is_null()) {
          weights[part] = *own;
        }
      }
      if (const State* models = found->find("models")) {
        for (const auto& entry : models->map()) {
          weights["models"][entry.key.string()]["model"] = entry.value.at("model");
        }
      }
      check<CheckpointError>(weights.is_map(), "checkpoint.read", "expected 'model' or 'models', got neither");
      const State* rows = found->find("results");
      const bool says = rows != nullptr && rows->is_list() && !rows->list().empty();
      return std::pair(std::move(weights),
                       says ? concat(round_name(rows->list().back().at("index").integer()), " (best)") : "best");
    }
  } catch (const CheckpointError& error) {
    problem = concat("got ", error.what());
  }
  logger().warning(
      concat(key, ": expected the weights of the best result in best.pth, ", problem, "; those of the last are taken"));
  return std::nullopt;
}

bool BaseRunner::exports_best() const {
  return config().checkpoint.export_with == "best" && !config().checkpoint.load_only && config().record &&
         !has_best_weights();
}

void BaseRunner::export_best() {
  CheckpointManager& manager = checkpoint_manager();
  if (!exports_best() || (!is_main_process() && !manager.is_collective())) {
    return;
  }
  auto best = best_weights("checkpoint.export_with: best");
  services_->exported_weights = best ? best->second : weights_name();
  services_->exported = best ? std::optional(std::move(best->first)) : std::nullopt;
  try {
    manager.save_model_checkpoint("model");
  } catch (...) {
    services_->exported.reset();
    throw;
  }
  services_->exported.reset();
  settle_checkpoints();
}

Result TorchRunnerBase::test() {
  initialize();
  tested_weights_ = weights_name();
  const auto splits = test_splits();
  auto best = config().test_with == "best" && !splits.empty() ? best_weights("test_with: best") : std::nullopt;
  const State last = best ? clone(model_state_dict()) : State();
  Result result;
  try {
    if (best) {
      load_weights(best->first);
      tested_weights_ = best->second;
      best.reset();
    }
    for (const auto& split : splits) {
      result.set(split, evaluate_epoch(split));
    }
  } catch (...) {
    if (last.is_map()) {
      load_weights(last);
    }
    throw;
  }
  if (last.is_map()) {
    load_weights(last);
  }
  test_result_ = result;
  return result;
}

void TorchRunnerBase::load_weights(const State& state) {
  if (model || models.empty()) {
    load_model(state.at("model"));
  }
  if (ema) {
    load_ema(state.at("ema"));
  }
  if (!models.empty()) {
    load_models(state.at("models"));
  }
}

std::string TorchRunnerBase::exported_weights() { return services().exported_weights; }

}  // namespace danling::inline v0
