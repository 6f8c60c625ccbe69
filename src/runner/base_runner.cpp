// Construction, identity, budgets and the life cycle of a runner.
#include <danling/runner/base_runner.hpp>

#include <algorithm>
#include <csignal>
#include <exception>
#include <random>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <danling/config/tree.hpp>
#include <danling/core/signals.hpp>
#include <danling/core/suggest.hpp>
#include <danling/runner/early_stopping.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/workspace/timestamp.hpp>

#include "runner/services.hpp"

namespace danling::inline v0 {
namespace {

at::Device resolve_device(const std::string& name, std::int64_t local_rank) {
  const bool cuda = at::hasCUDA() && at::detail::getCUDAHooks().deviceCount() > 0;
  if (name == "auto") {
    return cuda ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(local_rank)) : at::Device(at::kCPU);
  }
  const auto bad = [&](std::string_view reason) {
    fail<ConfigError>("runner.device", "expected auto, cpu, cuda or cuda:N, got ", quote(name), reason);
  };
  std::optional<at::Device> device;
  try {
    device.emplace(name);
  } catch (const std::exception&) {
    bad("");
  }
  if (device->is_cuda()) {
    if (!cuda) {
      bad(" on a machine (or a LibTorch) without CUDA");
    }
    if (!device->has_index()) {
      device->set_index(static_cast<c10::DeviceIndex>(local_rank));
    }
    if (device->index() >= at::detail::getCUDAHooks().deviceCount()) {
      bad(concat(", but there are ", static_cast<int>(at::detail::getCUDAHooks().deviceCount()), " CUDA devices"));
    }
  } else if (!device->is_cpu()) {
    bad("");
  }
  return *device;
}

std::uint64_t generate_seed() {
  std::random_device entropy;
  return entropy();  // 32 bits, as DanLing
}

std::vector<std::string> sorted_unique(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

Stopped::~Stopped() = default;

BaseRunner::BaseRunner(StoredConfig<RunnerConfig> stored) : config_(std::move(stored)) {
  validate(config());
  parallelism_ = std::make_unique<Parallelism>(read_process_identity());
  state_.elastic.restart_count = parallelism_->identity().restart_count;
  device_ = resolve_device(config().device, local_rank());
  early_stopping_ = std::make_shared<EarlyStopping>(config().patience);
  logger_ = std::make_unique<Logger>(
      LoggerOptions{.console = config().console && is_main_process(), .keep = std::size_t{1} << 16});
  config_id_ = danling::config_id(config());
  timestamp_ = make_timestamp();
  if (config().deterministic) {
    set_deterministic();
  }
  seed_ = config().seed ? static_cast<std::uint64_t>(*config().seed) : generate_seed();
  seed_generators(parallelism_->seed(seed_));
}

BaseRunner::~BaseRunner() {
  if (services_ != nullptr && phase_ != Phase::closed) {
    services_->logger.warning("a runner was destroyed without close(): its last checkpoints and logs may be missing");
  }
}

std::string BaseRunner::name() const {
  return config().name.value_or(concat(config().lineage, "-", config().experiment));
}

std::string BaseRunner::id() const { return make_run_id(code_id(), config_id_); }

const CodeIdentity& BaseRunner::code() const {
  if (code_ == nullptr) {
    code_ = std::make_unique<CodeIdentity>(read_code_identity());
  }
  return *code_;
}

const std::string& BaseRunner::code_id() const { return code().id; }

const Group& BaseRunner::group() const { return parallelism_->group(); }
std::int64_t BaseRunner::rank() const { return parallelism_->identity().rank; }
std::int64_t BaseRunner::local_rank() const { return parallelism_->identity().local_rank; }
std::int64_t BaseRunner::world_size() const { return parallelism_->identity().world_size; }

// ---- progress -------------------------------------------------------------------------------------------------------

std::optional<std::int64_t> BaseRunner::epochs() const { return config().epochs; }

std::optional<std::int64_t> BaseRunner::steps() const {
  if (config().steps) {
    return config().steps;
  }
  const auto per_epoch = steps_per_epoch();
  return epochs() && per_epoch ? std::optional<std::int64_t>(*epochs() * *per_epoch) : std::nullopt;
}

std::int64_t BaseRunner::accum_steps() const { return config().accum_steps; }

double BaseRunner::progress() const {
  if (const auto total = steps(); total && *total > 0) {
    return static_cast<double>(state_.train.global_step) / static_cast<double>(*total);
  }
  if (const auto total = epochs(); total && *total > 0) {
    return static_cast<double>(state_.train.epoch) / static_cast<double>(*total);
  }
  fail<StateError>("runner.progress", "expected steps or epochs in the config, got neither");
}

std::int64_t BaseRunner::checkpoint_interval() const {
  if (config().checkpoint.interval) {
    return *config().checkpoint.interval;
  }
  if (epochs()) {
    return 1;
  }
  const auto total = steps();
  return total ? std::max<std::int64_t>((*total + 19) / 20, 1) : 8192;
}

std::int64_t BaseRunner::log_interval() const {
  if (config().log_interval) {
    return *config().log_interval;
  }
  const auto total = steps();
  return total ? std::max<std::int64_t>((*total + 99) / 100, 1) : 1024;
}

std::optional<std::string> BaseRunner::score_split() const {
  if (config().score_split) {
    return config().score_split;
  }
  const auto names = evaluate_splits();
  for (const auto& name : names) {
    if (name.starts_with("val") || name.starts_with("Val") || name.starts_with("VAL")) {
      return name;
    }
  }
  return names.empty() ? std::nullopt : std::optional<std::string>(names.front());
}

std::vector<std::string> BaseRunner::train_splits() const {
  if (config().train_splits) {
    return sorted_unique(*config().train_splits);
  }
  std::vector<std::string> names;
  for (const auto& split : splits()) {
    if (split.name == "train" || split.train) {
      names.push_back(split.name);
    }
  }
  return sorted_unique(names);
}

std::vector<std::string> BaseRunner::test_splits() const {
  return config().test_splits ? sorted_unique(*config().test_splits) : std::vector<std::string>();
}

std::vector<std::string> BaseRunner::evaluate_splits() const {
  const auto test = test_splits();
  const auto train = train_splits();
  std::vector<std::string> names;
  if (config().evaluate_splits) {
    names = *config().evaluate_splits;
  } else {
    for (const auto& split : splits()) {
      if (std::find(train.begin(), train.end(), split.name) == train.end()) {
        names.push_back(split.name);
      }
    }
  }
  std::erase_if(names, [&](const auto& item) { return std::find(test.begin(), test.end(), item) != test.end(); });
  return sorted_unique(names);
}

// ---- life cycle -----------------------------------------------------------------------------------------------------

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
  services_->restore = find_restore_point();
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
    observers_.add(services.recorder, /*steps=*/false);
  }
  observers_.add(services.console, /*steps=*/logger_->console().live());
  observers_.add(early_stopping_, /*steps=*/false);
}

void BaseRunner::init_distributed() {
  const std::string& launcher = parallelism_->identity().launcher;
  const std::string_view variable = launcher == "openmpi" ? "OMPI_COMM_WORLD_SIZE"
                                    : launcher == "slurm" ? "SLURM_STEP_NUM_TASKS"
                                    : launcher == "mpich" ? "PMI_SIZE"
                                                          : "WORLD_SIZE";
  check<DistributedError>(world_size() == 1, "runner.init_distributed", "expected one process, got ", variable, "=",
                          world_size(), "; this release trains in one process: start one, or set ", variable, "=1");
}

void BaseRunner::set_parallelism(std::unique_ptr<Parallelism> parallelism) {
  check<StateError>(phase_ == Phase::initializing && services_ == nullptr, "runner.set_parallelism",
                    "expected a call from init_distributed, got one at another time");
  check<StateError>(parallelism != nullptr, "runner.set_parallelism", "expected an object, got null");
  const auto before = parallelism_->seed(seed_);
  parallelism_ = std::move(parallelism);
  if (parallelism_->seed(seed_) != before) {
    seed_generators(parallelism_->seed(seed_));
  }
}

void BaseRunner::init_fault_tolerance() {}

void BaseRunner::check_split_names() const {
  std::vector<std::string> known;
  for (const auto& split : splits()) {
    known.push_back(split.name);
  }
  const auto expect = [&](const std::string& name, std::string_view key) {
    check<ConfigError>(std::find(known.begin(), known.end(), name) != known.end(), "runner.splits",
                       "expected a split among [", join(known), "] in ", key, ", got ", quote(name),
                       did_you_mean(name, known));
  };
  for (const auto& entry : config().dataloader.splits) {
    expect(entry.first, "dataloader");
  }
  for (const auto& name : train_splits()) {
    expect(name, "train_splits");
  }
  for (const auto& name : evaluate_splits()) {
    expect(name, "evaluate_splits");
  }
  for (const auto& name : test_splits()) {
    expect(name, "test_splits");
  }
  if (config().score_split && !known.empty()) {  // a program that brings the batches names splits as it goes
    expect(*config().score_split, "score_split");
  }
}

void BaseRunner::check_lengths() const {
  for (const auto& name : train_splits()) {
    const auto length = split_length(name);
    check<ConfigError>(!length || *length > 0, "runner.build_dataloaders", "expected at least one batch in split ",
                       quote(name), ", got fewer records than dataloader.batch_size, which drop_last leaves out");
  }
}

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
        settle_best();
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

void BaseRunner::set_deterministic() {
  at::globalContext().setBenchmarkCuDNN(false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setDeterministicAlgorithms(/*enabled=*/true, /*warn_only=*/false);
}

bool BaseRunner::stop_requested() const { return stop_.load(std::memory_order_relaxed) != 0 || stop_signal() != 0; }

void BaseRunner::maybe_stop(bool save, bool stop) {
  poll_checkpoints();
  if (!stop) [[likely]] {
    return;
  }
  const int own = stop_.load(std::memory_order_relaxed);
  const int signal = own != 0 ? own : stop_signal() != 0 ? stop_signal() : SIGTERM;  // another rank was asked
  notify(&Callback::on_stop, StopEvent{{*this}, signal});
  if (save) {
    save_checkpoint("latest", /*save_best=*/false, /*last_step=*/false, /*force=*/true);
    settle_checkpoints();
  }
  throw Stopped(signal, concat("[runner.stop] stopped by ", signal_name(signal), " at epoch ", state_.train.epoch,
                               ", step ", state_.train.global_step, save ? "; the run is saved" : ""));
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
