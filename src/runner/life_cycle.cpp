// Life cycle of a runner: initialize(), close(), and its services in between.
#include <chrono>
#include <exception>

#include <danling/checkpoint/file_manager.hpp>
#include <danling/checkpoint/sharded_manager.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/runner/parallelism.hpp>

#include <runner/agreed_error.hpp>
#include <runner/saver.hpp>
#include <runner/services.hpp>
#include <runner/setup.hpp>

namespace danling::inline v0 {
namespace {

/// Checks what an override of state_dict() returns: a checkpoint of the run would lack its weights.
State with_base_state(State state) {
  check<StateError>(state.is_map() && state.find("state") != nullptr, "runner.state_dict",
                    "expected an override to add to the state of its base class, got one without it; begin with "
                    "State out = TorchRunner::state_dict()");
  return state;
}

}  // namespace

void BaseRunner::initialize() {
  switch (phase_) {
    case Phase::ready:
      return;
    case Phase::initializing:
      fail<StateError>("runner.initialize", "expected to be called once, got a call from one of its hooks");
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
    Internals::Setup(*this).run();
  } catch (const std::exception& error) {
    failure_ = error.what();
    phase_ = Phase::failed;
    throw;
  } catch (...) {
    failure_ = detail::unknown_error;
    phase_ = Phase::failed;
    throw;
  }
  phase_ = Phase::ready;
}

void BaseRunner::init_checkpoint_manager() {
  if (services().checkpoint_manager != nullptr) {
    return;
  }
  CheckpointOptions options = config().checkpoint;
  options.directory = workspace().checkpoint_dir();
  options.interval = checkpoint_interval();
  options.load_only = options.load_only || !config().record;
  options.sync_first = workspace().metrics_file();
  const auto exported = [this] {
    return exported_state_dict(services_->exported ? *services_->exported : model_state_dict());
  };
  const bool is_whole = parallelism().can_gather_full_state();
  const std::string& backend = config().checkpoint.backend;
  check<ConfigError>(is_whole || backend != "file", "runner.init_checkpoint_manager",
                     "expected 'checkpoint.backend: dcp', or auto, where ranks have slices or stages of the model, got "
                     "file");
  saves_shards_ = backend == "dcp" || (backend == "auto" && !is_whole);
  if (saves_shards_) {
    set_checkpoint_manager(std::make_unique<TorchDistributedCheckpointManager>(
        std::move(options), group(), [this] { return sharded_state(with_base_state(state_dict())); },
        [this, exported] { return sharded_state(exported()); },
        [this](const std::string& path, at::IntArrayRef sizes) { return shard_box(path, sizes); }));
    return;
  }
  set_checkpoint_manager(std::make_unique<FileCheckpointManager>(
      std::move(options), [this] { return with_base_state(state_dict()); }, exported));
}

ShardedState BaseRunner::sharded_state(State state) const { return {.state = std::move(state)}; }

std::optional<ShardBox> BaseRunner::shard_box(const std::string&, at::IntArrayRef) const { return ShardBox(); }

bool BaseRunner::close(std::optional<double> timeout) {
  if (phase_ == Phase::closed) {
    return true;
  }
  if (services_ != nullptr) {
    auto& services = *services_;
    if (const std::string lost = unfinished_work(); !lost.empty()) {
      services.logger.warning(concat("runner.close: ", lost));
    }
    if (services.watchdog != nullptr && !services.watchdog->runs()) {  // otherwise a callback closes the runner
      services.watchdog.reset();
    }
    std::exception_ptr failure;
    try {
      if (services.checkpoint_manager != nullptr &&
          !services.checkpoint_manager->close(timeout ? timeout : config().checkpoint.wait_timeout)) {
        services.logger.warning("runner.close: checkpoints were not written in time");
        return false;
      }
    } catch (const CheckpointError& error) {
      if (!services.checkpoint_manager->checkpoint_health().failing.empty()) {
        failure = std::current_exception();  // closes the rest nevertheless
      } else {
        services.logger.warning(error.what());  // an earlier save that a later one replaced
      }
    } catch (...) {
      failure = std::current_exception();
    }
    services.console->finish();
    if (services.checkpoint_manager != nullptr && services.checkpoint_manager->has_warning()) {
      services.logger.warning(services.checkpoint_manager->take_warning());
    }
    if (services.checkpoint_manager != nullptr &&
        services.checkpoint_manager->checkpoint_health().failing.contains("best")) {
      try {
        Internals::Saver(*this).reconcile_best();
      } catch (const Error& error) {
        services.logger.warning(error.what());
      }
    }
    if (services.recorder != nullptr && services.recorder->is_open() && !services.recorder->has_summary()) {
      try {
        write_summary(sinks_->end().status, sinks_->end().error);
      } catch (const std::exception& error) {
        services.logger.warning(error.what());
      }
    }
    sinks_->close(std::chrono::seconds(10));
    if (services.recorder != nullptr) {
      services.recorder->close();
    }
    if (services.heartbeat != nullptr) {
      detail::mark(*services.progress, state_);
      services.heartbeat->close();
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

detail::RunnerServices& BaseRunner::services() {
  check<StateError>(services_ != nullptr, "runner.services", "expected an initialised runner; call initialize() first");
  return *services_;
}

Workspace& BaseRunner::workspace() { return services().workspace; }
Logger& BaseRunner::logger() { return *logger_; }

CheckpointManager& BaseRunner::checkpoint_manager() {
  auto& manager = services().checkpoint_manager;
  check<StateError>(manager != nullptr, "runner.checkpoint_manager",
                    "expected a checkpoint manager, got none; init_checkpoint_manager must set one");
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
