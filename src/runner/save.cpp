// Saves a run: takes checkpoints, handles failed saves, waits for the last one.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <danling/runner/base_runner.hpp>

#include <runner/display.hpp>
#include <runner/records.hpp>
#include <runner/saver.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {

void BaseRunner::save_checkpoint(const std::string& name, bool save_best, bool last_step, bool force) {
  const bool taken = Internals::Saver(*this).save({name, save_best, last_step, force});
  if (!taken && force && is_main_process()) {
    logger().warning(concat("runner.save_checkpoint: expected a place to save ", quote(name), " in, got ",
                            config().record ? "checkpoint.load_only" : "record: false"));
  }
}

bool BaseRunner::Internals::Saver::save(const detail::SaveCall& call) {
  CheckpointManager& manager = runner_.checkpoint_manager();
  auto& services = *runner_.services_;
  if (!runner_.is_settled()) {
    defer(call);
    return true;
  }
  const detail::WatchedSave watched(*services.progress);
  Records(runner_).begin();
  runner_.synchronize_counters();
  const auto ranks = gather_rank_states();
  const auto exposed = runner_.gather_checkpoint_state(/*writes=*/false);
  if (!runner_.is_main_process() && !manager.is_collective()) {
    return false;
  }
  if (services.recorder != nullptr) {
    services.recorder->reopen();
  }
  const CheckpointRequest request = make_request(call);
  const auto start = std::chrono::steady_clock::now();
  bool taken = false;
  try {
    taken = manager.save_checkpoint(request);
  } catch (const CheckpointError& error) {
    if (call.last_step || call.force) {
      throw;  // no later save retries
    }
    on_failure(error.what());
  }
  poll();
  if (taken) {
    const std::chrono::duration<double> held = std::chrono::steady_clock::now() - start;
    services.logger.debug(concat("checkpoint: training waited ", to_fixed(held.count(), 3), " s for the save of ",
                                 call.name, ", ", detail::place_in_run(runner_)));
    if (std::exchange(services.has_partial_step, false)) {
      services.logger.warning(
          "runner.save_checkpoint: a step threw before this save: a run resumed from it may differ from an "
          "uninterrupted one; load an earlier checkpoint to resume exactly");
    }
    if (call.last_step && call.name == "latest" && !exports_best()) {
      services.exported_weights = weights_name();
      export_files();
    }
    runner_.callbacks_.notify(&Callback::on_save, "on_save",
                              SaveEvent{{runner_}, call.name, call.last_step, call.save_best && request.is_best});
  }
  return taken;
}

CheckpointRequest BaseRunner::Internals::Saver::make_request(const detail::SaveCall& call) const {
  const auto& train = runner_.state_.train;
  const ResultHistory& results = runner_.results_;
  const bool by_steps = runner_.is_step_mode();
  // True if the last result belongs to the current state: only then can it be the best, and only at the end of an epoch
  // (in step mode anywhere) does it enter the history.
  const auto* latest = results.latest();
  const bool scored = latest != nullptr && latest->index == (by_steps ? train.global_step : train.epoch - 1) &&
                      (by_steps || runner_.at_boundary());
  // A stop follows the save on the interval, which is already in the history.
  const bool stopping = call.stopping || (call.force && runner_.stop_requested());
  // In step mode there is no score before the first evaluation: until then the newest state counts as the best.
  const bool unscored = by_steps && results.empty() && results.score_split();
  const auto score = scored ? results.score_of(*latest) : std::nullopt;
  return {.name = call.name,
          .epoch = std::max<std::int64_t>(train.epoch - 1, 0),
          .global_step = train.global_step,
          .step_mode = by_steps,
          .is_best = unscored || (scored && results.is_best()),
          .save_best = call.save_best,
          .last_step = call.last_step,
          .history = (by_steps || scored) && !stopping,
          .force = call.force,
          .due = call.due,
          .score = score && std::isfinite(*score) ? score : std::nullopt,
          .higher_is_better = results.higher_is_better(),
          .export_model = !exports_best()};
}

// Merges repeated requests for one name into one save.
void BaseRunner::Internals::Saver::defer(detail::SaveCall call) {
  const std::int64_t interval = runner_.checkpoint_interval();
  call.due = interval > 0 && runner_.is_step_mode() && runner_.state_.train.global_step % interval == 0;
  for (auto& other : runner_.services_->deferred_saves) {
    if (other.name == call.name) {
      other.save_best |= call.save_best;
      other.last_step |= call.last_step;
      other.force |= call.force;
      other.due |= call.due;
      return;
    }
  }
  runner_.services_->deferred_saves.push_back(std::move(call));
}

void BaseRunner::Internals::Saver::save_deferred() {
  for (const auto& call : std::exchange(runner_.services_->deferred_saves, {})) {
    save(call);
  }
}

void BaseRunner::save_seed_checkpoint(const std::string& name) {
  initialize();
  if (state_.train.global_step != 0 || state_.train.epoch != 0) {
    logger().warning(concat("runner.save_seed_checkpoint: expected a run that has not advanced, got epoch ",
                            state_.train.epoch, ", step ", state_.train.global_step));
  }
  save_checkpoint(name, /*save_best=*/false, /*last_step=*/true, /*force=*/true);
}

void BaseRunner::Internals::Saver::poll() {
  auto& services = *runner_.services_;
  CheckpointManager& manager = *services.checkpoint_manager;
  if (manager.has_failure()) [[unlikely]] {
    try {
      manager.throw_failure();
    } catch (const CheckpointError& error) {
      on_failure(error.what());
    }
  }
  if (manager.has_warning()) [[unlikely]] {
    log_warning();
  }
  if (!services.checkpoint_failure.empty()) [[unlikely]] {
    const auto health = manager.checkpoint_health();
    if (health.failing.empty()) {
      services.checkpoint_failure.clear();
      services.logger.info(concat("checkpoint: saves succeed again; ", health.error_count, " failed so far"));
    }
  }
}

// Logs a warning whatever checkpoint.on_error is, since no save failed.
void BaseRunner::Internals::Saver::log_warning() {
  const std::string notice = runner_.services_->checkpoint_manager->take_warning();
  auto* recorder = runner_.services_->recorder.get();
  const bool logged = recorder != nullptr && (recorder->reopen() || recorder->take_removal_logged());
  if (!logged) {
    runner_.services_->logger.warning(concat(notice, "; training continues"));
  }
}

void BaseRunner::Internals::Saver::on_failure(const std::string& text) {
  if (runner_.config().checkpoint.on_error == "stop") {
    throw CheckpointError(text);
  }
  auto& services = *runner_.services_;
  if (services.checkpoint_manager->checkpoint_health().failing.empty()) {  // a later save replaced it, or it is lost
    services.logger.warning(concat(text, "; training continues"));
  } else if (text != services.checkpoint_failure) {  // a full disk repeats the error at every save
    services.checkpoint_failure = text;
    services.logger.warning(concat(text, "; training continues, earlier checkpoints are intact"));
  }
}

void BaseRunner::wait_for_checkpoints() {
  check<StateError>(services_ != nullptr, "runner.wait_for_checkpoints",
                    "expected a call after initialize(), got one before");
  const detail::WatchedSave watched(*services_->progress);
  CheckpointManager& manager = checkpoint_manager();
  const auto timeout = config().checkpoint.wait_timeout;
  bool done = false;
  try {
    done = manager.wait(timeout);
  } catch (const CheckpointError& error) {
    done = true;
    if (manager.checkpoint_health().failing.empty()) {
      Internals::Saver(*this).on_failure(error.what());  // an earlier save that a later one replaced
    }
  }
  check<CheckpointError>(done, "runner.save_checkpoint", "expected the last checkpoint on disk within ",
                         format_seconds(timeout.value_or(0.0)), " (checkpoint.wait_timeout), got a timeout");
  auto failing = manager.checkpoint_health().failing;
  failing.erase("best");
  if (!failing.empty()) {
    const auto latest = failing.find("latest");
    throw CheckpointError((latest != failing.end() ? latest : failing.begin())->second);
  }
  Internals::Saver(*this).poll();
  Internals::Saver(*this).reconcile_best();  // also when best.pth was removed
}

void BaseRunner::Internals::Saver::save_last() {
  runner_.save_checkpoint("latest", /*save_best=*/true, /*last_step=*/true);
  runner_.wait_for_checkpoints();
  export_best();
  Records(runner_).retry_writes();
}

void BaseRunner::Internals::Saver::save_finished_model() {
  CheckpointManager& manager = runner_.checkpoint_manager();
  const auto exposed = runner_.gather_checkpoint_state(/*writes=*/false);
  if (runner_.results_.latest() != nullptr && (runner_.is_main_process() || manager.is_collective())) {
    if (exports_best()) {
      export_best();
    } else {
      manager.save_model_checkpoint("model");
      runner_.services_->exported_weights = weights_name();
      export_files();
      runner_.wait_for_checkpoints();
    }
    Records(runner_).retry_writes(/*again=*/true);
  }
}

}  // namespace danling::inline v0
