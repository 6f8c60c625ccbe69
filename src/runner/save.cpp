// Saving a run: when a checkpoint is taken, what a failed one does, when the last one is on disk.
#include <danling/runner/base_runner.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runner/records.hpp"
#include "runner/saver.hpp"
#include "runner/services.hpp"

namespace danling::inline v0 {

void BaseRunner::save_checkpoint(const std::string& name, bool save_best, bool last_step, bool force) {
  const bool taken = Saver(*this).save({name, save_best, last_step, force});
  if (!taken && force && is_main_process()) {
    logger().warning(concat("runner.save_checkpoint: expected a place to save ", quote(name), " in, got ",
                            config().record ? "checkpoint.load_only" : "record: false"));
  }
}

bool BaseRunner::Saver::save(const detail::SaveOrder& order) {
  CheckpointManager& manager = runner_.checkpoint_manager();
  auto& services = *runner_.services_;
  if (!runner_.is_settled()) {
    put_off(order);
    return true;
  }
  Records(runner_).begin();
  const auto ranks = gather_rank_states();
  if (!runner_.is_main_process() && !manager.is_collective()) {
    return false;
  }
  if (services.recorder != nullptr) {
    services.recorder->reopen();
  }
  const CheckpointRequest request = request_of(order);
  bool taken = false;
  try {
    taken = manager.save_checkpoint(request);
  } catch (const CheckpointError& error) {
    if (order.last_step || order.force) {
      throw;  // nothing will try again
    }
    on_failure(error.what());
  }
  poll();
  if (taken) {
    if (std::exchange(services.inexact, false)) {
      services.logger.warning(
          "runner.save_checkpoint: a step threw before this save, so a run that resumes from it may differ from one "
          "that "
          "was never stopped; load an earlier checkpoint to resume exactly");
    }
    if (order.last_step && order.name == "latest" && !exports_best()) {
      services.exported_weights = weights_name();
    }
    runner_.callbacks_.notify(&Callback::on_save,
                              SaveEvent{{runner_}, order.name, order.last_step, order.save_best && request.is_best});
  }
  return taken;
}

CheckpointRequest BaseRunner::Saver::request_of(const detail::SaveOrder& order) const {
  const auto& train = runner_.state_.train;
  const ResultBook& results = runner_.results_;
  const bool by_steps = runner_.is_step_mode();
  // Whether the last result is that of this very state: only then it can be the best, and only where an epoch ends (or,
  // by steps, anywhere) it is a point of the history.
  const auto* latest = results.latest();
  const bool scored = latest != nullptr && latest->index == (by_steps ? train.global_step : train.epoch - 1) &&
                      (by_steps || runner_.at_boundary());
  // A stop comes after the save that the interval asked for, which is the history's.
  const bool stopping = order.force && runner_.stop_requested();
  // By steps there is none before the first evaluation: until then the newest state is the best that there is.
  const bool unscored = by_steps && results.empty() && results.score_split();
  const auto score = scored ? results.score_of(*latest) : std::nullopt;
  return {.name = order.name,
          .epoch = std::max<std::int64_t>(train.epoch - 1, 0),
          .global_step = train.global_step,
          .step_mode = by_steps,
          .is_best = unscored || (scored && results.is_best()),
          .save_best = order.save_best,
          .last_step = order.last_step,
          .history = (by_steps || scored) && !stopping,
          .force = order.force,
          .due = order.due,
          .score = score && std::isfinite(*score) ? score : std::nullopt,
          .higher_is_better = results.higher_is_better(),
          .export_model = !exports_best()};
}

// What is asked for more than once until then is saved once.
void BaseRunner::Saver::put_off(detail::SaveOrder order) {
  const std::int64_t interval = runner_.checkpoint_interval();
  order.due = interval > 0 && runner_.is_step_mode() && runner_.state_.train.global_step % interval == 0;
  for (auto& other : runner_.services_->deferred_saves) {
    if (other.name == order.name) {
      other.save_best |= order.save_best;
      other.last_step |= order.last_step;
      other.force |= order.force;
      other.due |= order.due;
      return;
    }
  }
  runner_.services_->deferred_saves.push_back(std::move(order));
}

void BaseRunner::Saver::save_deferred() {
  for (const auto& order : std::exchange(runner_.services_->deferred_saves, {})) {
    save(order);
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

void BaseRunner::Saver::poll() {
  auto& services = *runner_.services_;
  CheckpointManager& manager = *services.checkpoint_manager;
  if (manager.has_failure()) [[unlikely]] {
    try {
      manager.throw_failure();
    } catch (const CheckpointError& error) {
      on_failure(error.what());
    }
  }
  if (manager.has_notice()) [[unlikely]] {
    log_notice();
  }
  if (!services.checkpoint_failure.empty()) [[unlikely]] {
    const auto health = manager.checkpoint_health();
    if (health.failing.empty()) {
      services.checkpoint_failure.clear();
      services.logger.info(concat("checkpoint: saves succeed again; ", health.error_count, " failed so far"));
    }
  }
}

// A warning whatever checkpoint.on_error is: no save failed.
void BaseRunner::Saver::log_notice() {
  const std::string notice = runner_.services_->checkpoint_manager->take_notice();
  auto* recorder = runner_.services_->recorder.get();
  const bool told = recorder != nullptr && (recorder->reopen() || recorder->take_removal_told());
  if (!told) {
    runner_.services_->logger.warning(concat(notice, "; training goes on"));
  }
}

void BaseRunner::Saver::on_failure(const std::string& text) {
  if (runner_.config().checkpoint.on_error == "stop") {
    throw CheckpointError(text);
  }
  auto& services = *runner_.services_;
  if (services.checkpoint_manager->checkpoint_health().failing.empty()) {  // made good since, or gone for good
    services.logger.warning(concat(text, "; training goes on"));
  } else if (text != services.checkpoint_failure) {  // a full disk says the same at every save
    services.checkpoint_failure = text;
    services.logger.warning(concat(text, "; training goes on, earlier checkpoints are whole"));
  }
}

void BaseRunner::settle_checkpoints() {
  CheckpointManager& manager = checkpoint_manager();
  const auto timeout = config().checkpoint.wait_timeout;
  bool done = false;
  try {
    done = manager.wait(timeout);
  } catch (const CheckpointError& error) {
    done = true;
    if (manager.checkpoint_health().failing.empty()) {
      Saver(*this).on_failure(error.what());  // an earlier one, made good since
    }
  }
  check<CheckpointError>(done, "runner.save_checkpoint", "expected the last checkpoint on disk within ",
                         timeout.value_or(0.0), " s (checkpoint.wait_timeout), got no answer from the disk");
  auto failing = manager.checkpoint_health().failing;
  failing.erase("best");
  if (!failing.empty()) {
    const auto latest = failing.find("latest");
    throw CheckpointError((latest != failing.end() ? latest : failing.begin())->second);
  }
  Saver(*this).poll();
  Saver(*this).settle_best();  // also where someone else removed it
}

void BaseRunner::Saver::save_last() {
  runner_.save_checkpoint("latest", /*save_best=*/true, /*last_step=*/true);
  runner_.settle_checkpoints();
  export_best();
  Records(runner_).settle();
}

void BaseRunner::Saver::save_finished_model() {
  CheckpointManager& manager = runner_.checkpoint_manager();
  if (runner_.results_.latest() != nullptr && (runner_.is_main_process() || manager.is_collective())) {
    if (exports_best()) {
      export_best();
    } else {
      manager.save_model_checkpoint("model");
      runner_.services_->exported_weights = weights_name();
      runner_.settle_checkpoints();
    }
    Records(runner_).settle(/*again=*/true);
  }
}

}  // namespace danling::inline v0
