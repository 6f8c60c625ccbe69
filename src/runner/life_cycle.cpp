// The life of a runner after its construction: what initialize() builds, how it stops, what close() ends.
#include <danling/runner/base_runner.hpp>

#include <csignal>
#include <cstdlib>
#include <exception>

#include <danling/core/signals.hpp>
#include <danling/runner/early_stopping.hpp>
#include <danling/runner/parallelism.hpp>

#include "runner/restorer.hpp"
#include "runner/saver.hpp"
#include "runner/services.hpp"
#include "runner/shown.hpp"

namespace danling::inline v0 {

void BaseRunner::initialize() {
  switch (phase_) {
    case Phase::ready:
      return;
    case Phase::initializing:
      fail<StateError>("runner.initialize", "expected to be called once, got a call from one of its own hooks");
    case Phase::failed:
      fail<StateError>("runner.initialize",
                       "expected a runner that initialised, got one that failed before: ", failure_);
    case Phase::closed:
      fail<StateError>("runner.initialize", "expected an open runner, got a closed one");
    case Phase::constructed:
      break;
  }
  phase_ = Phase::initializing;
  try {
    initialize_once();
  } catch (const std::exception& error) {
    failure_ = error.what();
    phase_ = Phase::failed;
    throw;
  }
  phase_ = Phase::ready;
}

void BaseRunner::initialize_unless_initializing() {
  if (phase_ != Phase::initializing) {
    initialize();
  }
}

void BaseRunner::initialize_once() {
  init_distributed();
  make_services();
  init_checkpoint_manager();
  services_->restore = Restorer(*this).find();
  init_fault_tolerance();
  check_split_names();
  build_dataloaders();
  check_lengths();
  materialize_model();
  build_optimizer();
  build_scheduler();
  build_metrics();
  auto_restore();
}

void BaseRunner::make_services() {
  WorkspaceOptions options;
  options.root = config().workspace_root;
  options.lineage = config().lineage;
  options.name = name();
  options.code_id = code_id();
  options.config_id = config_id_;
  options.timestamp = timestamp_;
  options.checkpoint_dir_name = config().checkpoint.dir_name;
  services_ = std::make_unique<detail::RunnerServices>(std::move(options), *logger_);
  auto& services = *services_;
  services.checkpoint_manager = std::move(own_manager_);
  if (is_main_process() && config().record) {
    services.recorder = std::make_shared<detail::Recorder>(
        services.workspace, services.logger,
        detail::RecorderOptions{.log = config().log,
                                .stop_on_error = config().checkpoint.on_error == "stop",
                                .may_fail = config().checkpoint.load_only,
                                .by_path = config().resume.has_value(),
                                .first = round_number(0)});
    callbacks_.add_own(services.recorder, /*steps=*/false);
  }
  callbacks_.add_own(services.console, /*steps=*/logger_->console().live());
  callbacks_.add_own(early_stopping_, /*steps=*/false);
}

void BaseRunner::init_fault_tolerance() {}

bool BaseRunner::close(std::optional<double> timeout) {
  if (phase_ == Phase::closed) {
    return true;
  }
  if (services_ != nullptr) {
    auto& services = *services_;
    std::exception_ptr failure;
    try {
      if (services.checkpoint_manager != nullptr &&
          !services.checkpoint_manager->close(timeout ? timeout : config().checkpoint.wait_timeout)) {
        services.logger.warning("runner.close: checkpoints were not drained in time");
        return false;
      }
    } catch (const CheckpointError& error) {
      if (!services.checkpoint_manager->checkpoint_health().failing.empty()) {
        failure = std::current_exception();  // the rest is closed all the same
      } else {
        services.logger.warning(error.what());  // an earlier save, made good since
      }
    } catch (...) {
      failure = std::current_exception();
    }
    services.console->finish();
    if (services.checkpoint_manager != nullptr && services.checkpoint_manager->has_notice()) {
      services.logger.warning(services.checkpoint_manager->take_notice());
    }
    if (services.checkpoint_manager != nullptr &&
        services.checkpoint_manager->checkpoint_health().failing.contains("best")) {
      try {
        Saver(*this).settle_best();
      } catch (const Error& error) {
        services.logger.warning(error.what());
      }
    }
    if (services.recorder != nullptr) {
      services.recorder->close();
    }
    services.logger.close();
    services.workspace.close();
    phase_ = Phase::closed;
    if (failure != nullptr) {
      std::rethrow_exception(failure);
    }
  }
  phase_ = Phase::closed;
  return true;
}

bool BaseRunner::stop_requested() const {
  return requests_.stop.load(std::memory_order_relaxed) != 0 || stop_signal() != 0;
}

StepPacket BaseRunner::requested() const {
  return {.stop = stop_requested(),
          .end = requests_.end.has_value(),
          .evaluate = requests_.evaluation,
          .save = requests_.save};
}

StepPacket BaseRunner::agree(double weight) {
  StepPacket mine = requested();
  mine.weight = weight;
  const StepPacket all = parallelism_->agree(mine);
  if (all.end) [[unlikely]] {
    requests_.ending = requests_.end.value_or("another process has ended training");
    requests_.end.reset();
  }
  if (all.failed) [[unlikely]] {
    fail_with_others();
  }
  check<DistributedError>(!all.exhausted || !parallelism_->sums_gradients(), "runner.step",
                          "expected every process to have as many batches, got one that has ended its pass before");
  return all;
}

void BaseRunner::fail_with_others() {
  fail<DistributedError>("runner.train",
                         "expected every process to go on, got an error in another one; its log says more");
}

void BaseRunner::maybe_stop(bool save) { maybe_stop(save, agree().stop); }

void BaseRunner::maybe_stop(bool save, bool stop) {
  Saver(*this).poll();
  if (!stop) [[likely]] {
    return;
  }
  const int own = std::abs(requests_.stop.load(std::memory_order_relaxed));
  const int signal = own != 0 ? own : stop_signal() != 0 ? stop_signal() : SIGTERM;  // another rank was asked
  const bool taken = save && Saver(*this).save({"latest", /*save_best=*/false, /*last_step=*/false, /*force=*/true});
  if (save) {
    settle_checkpoints();
  }
  requests_.stop.store(-signal, std::memory_order_relaxed);  // obeyed: load_checkpoint() lets the program go on
  callbacks_.notify(&Callback::on_stop, StopEvent{{*this}, signal});
  throw Stopped(signal, concat("[runner.stop] stopped by ", signal_name(signal), " ", detail::place_in_run(*this),
                               taken                       ? "; the run is saved"
                               : save && is_main_process() ? "; nothing is saved, as the config says"
                                                           : ""));
}

detail::RunnerServices& BaseRunner::services() {
  check<StateError>(services_ != nullptr, "runner.services", "expected an initialised runner; call initialize() first");
  return *services_;
}

Workspace& BaseRunner::workspace() { return services().workspace; }
Logger& BaseRunner::logger() { return *logger_; }

CheckpointManager& BaseRunner::checkpoint_manager() {
  auto& manager = services().checkpoint_manager;
  check<StateError>(manager != nullptr, "runner.checkpoint_manager",
                    "expected a checkpoint manager, got none; init_checkpoint_manager must bind one");
  return *manager;
}

void BaseRunner::set_checkpoint_manager(std::unique_ptr<CheckpointManager> manager) {
  check<StateError>(phase_ == Phase::constructed || phase_ == Phase::initializing, "runner.set_checkpoint_manager",
                    "expected a call from a constructor or from init_checkpoint_manager, got one at another time");
  auto& current = services_ != nullptr ? services_->checkpoint_manager : own_manager_;
  if (current != nullptr) {
    current->close(0.0);
  }
  current = std::move(manager);
}

}  // namespace danling::inline v0
