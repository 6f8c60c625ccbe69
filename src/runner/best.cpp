// The checkpoint of the best result: keeps best.pth and best.json consistent, and loads the best weights.
#include <utility>

#include <danling/checkpoint/manager.hpp>
#include <danling/runner/base_runner.hpp>

#include <runner/records.hpp>
#include <runner/saver.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {
namespace {

std::string suffix(const std::string& average) { return average.empty() ? "" : concat(", ", average); }

// Adds the weights of a model in a checkpoint and, as 'ema', the average that its evaluation used; its name is
// `average`.
void add_weights(const State& saved, State& out, std::string& average) {
  const auto copy = [&](const std::string& from, const char* to) {
    const State* own = from.empty() ? nullptr : saved.find(from);
    if (own != nullptr && !own->is_null()) {
      out[to] = *own;
    }
    return own != nullptr && !own->is_null();
  };
  copy("model", "model");
  const State* averages = saved.find("averages");
  const std::string used = averages != nullptr ? averages->at("evaluated").string() : "ema";  // the program's `ema`
  if (copy(used, "ema") && average != "swa") {
    average = used;
  }
}

}  // namespace

bool BaseRunner::Internals::Saver::has_best_weights() const {
  const auto* best = runner_.results_.saved_best();
  return best != nullptr && (runner_.is_step_mode() || runner_.at_boundary()) &&
         runner_.round_number(best->index) ==
             (runner_.is_step_mode() ? runner_.state_.train.global_step : runner_.state_.train.epoch);
}

std::string BaseRunner::Internals::Saver::weights_name() const {
  const auto reached = runner_.is_step_mode() ? runner_.state_.train.global_step : runner_.state_.train.epoch;
  return concat(runner_.is_step_mode() ? "step " : "epoch ", reached, has_best_weights() ? " (last, best" : " (last",
                suffix(runner_.evaluated_average()), ")");
}

std::optional<std::pair<State, std::string>> BaseRunner::Internals::Saver::best_weights(std::string_view key) {
  if (has_best_weights()) {
    return std::nullopt;
  }
  std::string problem = "got none";
  try {
    if (const auto found = runner_.checkpoint_manager().load_best()) {
      State weights;
      std::string average;
      add_weights(*found, weights, average);
      if (const State* models = found->find("models")) {
        for (const auto& entry : models->map()) {
          add_weights(entry.value, weights["models"][entry.key.string()], average);
        }
      }
      check<CheckpointError>(weights.is_map(), "checkpoint.read", "expected 'model' or 'models', got neither");
      const State* rows = found->find("results");
      const bool has_results = rows != nullptr && rows->is_list() && !rows->list().empty();
      return std::pair(std::move(weights), has_results
                                               ? concat(runner_.round_name(rows->list().back().at("index").integer()),
                                                        " (best", suffix(average), ")")
                                               : "best");
    }
  } catch (const CheckpointError& error) {
    problem = concat("got ", error.what());
  }
  runner_.logger().warning(
      concat(key, ": expected the weights of the best result in best.pth, ", problem, "; uses the last weights"));
  return std::nullopt;
}

bool BaseRunner::Internals::Saver::exports_best() const {
  return runner_.config().checkpoint.export_with == "best" && !runner_.config().checkpoint.load_only &&
         runner_.config().record && !has_best_weights();
}

void BaseRunner::Internals::Saver::export_best() {
  CheckpointManager& manager = runner_.checkpoint_manager();
  const auto exposed = runner_.gather_checkpoint_state(/*writes=*/false);
  if (!exports_best() || (!runner_.is_main_process() && !manager.is_collective())) {
    return;
  }
  auto best = best_weights("checkpoint.export_with: best");
  runner_.services_->exported_weights = best ? best->second : weights_name();
  runner_.services_->exported = best ? std::optional(std::move(best->first)) : std::nullopt;
  try {
    manager.save_model_checkpoint("model");
    export_files();
  } catch (...) {
    runner_.services_->exported.reset();
    throw;
  }
  runner_.services_->exported.reset();
  runner_.wait_for_checkpoints();
}

void BaseRunner::Internals::Saver::export_files() {
  // For sharded checkpoints the manager writes model.safetensors.
  if (runner_.is_main_process() && !runner_.saves_shards() && runner_.config().record &&
      !runner_.config().checkpoint.load_only) {
    const auto& exported = runner_.services_->exported;
    runner_.export_files(exported ? *exported : runner_.model_state_dict(), runner_.workspace().checkpoint_dir());
  }
}

// Makes best.pth and best.json hold the same result; logs a warning if it is not the best result.
void BaseRunner::Internals::Saver::reconcile_best() {
  auto& services = *runner_.services_;
  const std::string previous = std::exchange(runner_.unsaved_best_, {});
  if (!Records(runner_).is_open()) {
    return;
  }
  auto& recorder = *services.recorder;
  recorder.set_best_file_index(std::nullopt);
  CheckpointManager& manager = runner_.checkpoint_manager();
  const auto* best = runner_.results_.saved_best();
  const auto there = manager.best_checkpoint();
  if (best == nullptr || !there) {
    return;
  }
  const std::int64_t held = there->index.value_or(-1);
  const bool has_index = there->index.has_value();  // a model-only file has none
  const auto failing = manager.checkpoint_health().failing;
  const auto reason = failing.find("best");
  const bool right = there->exists && (has_index ? held == best->index : reason == failing.end());
  if (right && recorder.best_file_holds(best->index)) {
    return;
  }
  if (!right && !republish_best(best->index)) {
    runner_.unsaved_best_ =
        concat("checkpoint: the best state, of ", runner_.round_name(best->index), ", is not on disk; ",
               held >= 0       ? concat("best.pth holds ", runner_.round_name(held))
               : there->exists ? std::string("best.pth holds another state")
                               : std::string("there is no best.pth"),
               reason != failing.end() ? concat(": ", reason->second) : std::string());
    recorder.set_best_file_index(held);
    if (runner_.unsaved_best_ != previous) {
      services.logger.warning(runner_.unsaved_best_);
    }
    if (recorder.best_file_row(runner_.results_) == nullptr) {
      recorder.remove_best_file();
    }
  }
  try {
    Records(runner_).retry_writes(/*again=*/true);
  } catch (const Error& error) {
    services.logger.warning(error.what());
  }
}

bool BaseRunner::Internals::Saver::republish_best(std::int64_t index) {
  auto& logger = runner_.services_->logger;
  std::vector<std::string> problems;
  const auto made_from = runner_.checkpoint_manager().republish_best(index, problems);
  for (const auto& problem : problems) {
    logger.warning(problem);
  }
  if (made_from) {
    logger.info(concat("checkpoint: recreated best.pth from ", *made_from));
  }
  return made_from.has_value();
}

}  // namespace danling::inline v0
