// What a runner records of itself: results, which of them best.pth and best.json hold, and how it ended.
#include <danling/runner/base_runner.hpp>

#include <utility>

#include <danling/checkpoint/manager.hpp>
#include <danling/config/tree.hpp>
#include <danling/core/suggest.hpp>

#include "runner/score_names.hpp"
#include "runner/services.hpp"

namespace danling::inline v0 {

bool BaseRunner::is_recording() const {
  return services_ != nullptr && services_->recorder != nullptr && services_->recorder->is_open();
}

void BaseRunner::begin_recording() {
  auto& services = *services_;
  if (std::exchange(recording_begun_, true)) {
    return;
  }
  const auto ranks = gather_rank_states();  // a run that takes over saves at once
  if (services.recorder == nullptr) {
    return;
  }
  const auto& from = services.restore;
  const ConfigTree full = to_tree(config());
  const bool take_over = services.recorder->open(
      from, checkpoint_manager().is_latest(from.path),
      {to_yaml(full), canonical(config()), to_yaml(changed(full, to_tree(config_.defaults())))}, code());
  if (!config().seed) {
    services.logger.info(concat("seed: ", seed_));
  }
  const bool restored = from.resumes() && !from.finished;
  if (restored) {
    select_score();
  }
  if (take_over && !config().checkpoint.load_only) {
    adopt_history();
  }
  services.recorder->taken_over();
  if (restored) {
    settle_best();
  }
}

// A run that goes on elsewhere than in its newest checkpoint: the state is saved under the names that it would have
// had, best and history too. Where a process died in its first save, or `latest` is damaged, or lies in another
// directory, they may be missing.
void BaseRunner::adopt_history() {
  auto& services = *services_;
  if (const auto& directory = services.recorder->taken_from(); !directory.empty()) {
    const auto* best = results_.saved_best();
    const auto problems = checkpoint_manager().adopt(
        directory, {.step_mode = is_step_mode(),
                    .progress = is_step_mode() ? state_.train.global_step : state_.train.epoch,
                    .best = best == nullptr ? std::nullopt : std::optional(best->index + (is_step_mode() ? 0 : 1))});
    for (const auto& problem : problems) {
      services.logger.warning(problem);
    }
  }
  save_checkpoint("latest", /*save_best=*/true, /*last_step=*/false, /*force=*/true);
  settle_checkpoints();
  settle_records(/*again=*/true);
}

void BaseRunner::select_score() { results_.select(score_split(), config().score_name, known_score_direction()); }

std::optional<bool> BaseRunner::known_score_direction() const {
  const auto& mode = config().score_mode;
  return mode ? std::optional(*mode == "max") : higher_is_better(config().score_name);
}

void BaseRunner::log_guessed_score() {
  const std::string& name = config().score_name;
  if (!known_score_direction() && name != "loss" && score_split()) {
    logger().info(concat("score: no metric says which way ", quote(name),
                         " is better, so higher is taken as better; set score_mode to min or max"));
  }
}

void BaseRunner::append_result(std::int64_t index, const Result& result) {
  results_.append(index, result);
  auto& services = *services_;
  const bool has_score = !results_.score_split() || results_.latest_score().has_value();
  const auto* numbers = has_score ? nullptr : result.find(*results_.score_split());
  if (numbers != nullptr && std::holds_alternative<Result>(*numbers) && results_.rows().size() == 1) {
    const auto names = detail::number_names(std::get<Result>(*numbers));
    services.logger.warning(concat("no score ", quote(results_.score_name()), " in the results of split ",
                                   quote(*results_.score_split()), ", which has [", join(names),
                                   "]: no best checkpoint is kept; set score_name",
                                   did_you_mean(results_.score_name(), names)));
  }
  notify(&Callback::on_result, ResultEvent{{*this}, index, result, results_});
}

void BaseRunner::settle_records(bool again) {
  if (services_->recorder != nullptr) {
    services_->recorder->settle(results_, again);
  }
}

std::string BaseRunner::round_name(std::int64_t index) const {
  return concat(is_step_mode() ? "step " : "epoch ", round_number(index));
}

// best.pth and best.json hold the same result; where that is not the best one, the run says so.
void BaseRunner::settle_best() {
  auto& services = *services_;
  const std::string told = std::exchange(unsaved_best_, {});
  if (!is_recording()) {
    return;
  }
  auto& recorder = *services.recorder;
  recorder.hold_best(std::nullopt);
  CheckpointManager& manager = checkpoint_manager();
  const auto* best = results_.saved_best();
  const auto there = manager.best_checkpoint();
  if (best == nullptr || !there) {
    return;
  }
  const std::int64_t held = there->index.value_or(-1);
  const bool says = there->index.has_value();  // a model alone does not
  const auto failing = manager.checkpoint_health().failing;
  const auto reason = failing.find("best");
  const bool right = there->exists && (says ? held == best->index : reason == failing.end());
  if (right && recorder.best_file_is_of(best->index)) {
    return;
  }
  if (!right && !remake_best(best->index)) {
    unsaved_best_ = concat("checkpoint: the best state, of ", round_name(best->index), ", is not on disk; ",
                           held >= 0       ? concat("best.pth holds ", round_name(held))
                           : there->exists ? std::string("best.pth is not of it")
                                           : std::string("there is no best.pth"),
                           reason != failing.end() ? concat(": ", reason->second) : std::string());
    recorder.hold_best(held);
    if (unsaved_best_ != told) {
      services.logger.warning(unsaved_best_);
    }
    if (recorder.row_of_best_file(results_) == nullptr) {
      recorder.remove_best_file();
    }
  }
  try {
    settle_records(/*again=*/true);
  } catch (const Error& error) {
    services.logger.warning(error.what());
  }
}

bool BaseRunner::remake_best(std::int64_t index) {
  auto& logger = services_->logger;
  std::vector<std::string> problems;
  const auto made_from = checkpoint_manager().remake_best(index, problems);
  for (const auto& problem : problems) {
    logger.warning(problem);
  }
  if (made_from) {
    logger.info(concat("checkpoint: made best.pth anew from ", *made_from));
  }
  return made_from.has_value();
}

void BaseRunner::write_summary(const std::string& status, const std::string& error, int signal, int exit_code) {
  if (!is_recording()) {
    return;
  }
  RunSummary summary{.status = status,
                     .error = error,
                     .signal = signal,
                     .exit_code = exit_code,
                     .epoch = state_.train.epoch,
                     .global_step = state_.train.global_step};
  fill_summary(summary);
  // The summary of the start that finished the run knows more than a later one, which did nothing.
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
  if (services_->checkpoint_manager != nullptr) {
    if (const auto errors = services_->checkpoint_manager->checkpoint_health().error_count; errors > 0) {
      summary.facts.emplace_back("checkpoint_errors", errors);
    }
  }
}

}  // namespace danling::inline v0
