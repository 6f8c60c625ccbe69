// Construction, identity and budgets of a runner.
#include <danling/runner/base_runner.hpp>

#include <algorithm>
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

void BaseRunner::set_deterministic() {
  at::globalContext().setBenchmarkCuDNN(false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setDeterministicAlgorithms(/*enabled=*/true, /*warn_only=*/false);
}

}  // namespace danling::inline v0
