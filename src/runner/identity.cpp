// Identity of a runner, read when it is constructed.
#include <danling/runner/identity.hpp>

#include <exception>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/state.hpp>
#include <danling/workspace/timestamp.hpp>
#include <danling/workspace/workspace.hpp>

namespace danling::inline v0 {
namespace {

at::Device resolve_device(const std::string& name, std::int64_t local_rank) {
  const bool cuda = at::hasCUDA() && at::detail::getCUDAHooks().deviceCount() > 0;
  if (name == "auto" && !cuda) {
    return at::kCPU;
  }
  const auto fail_device = [&](std::string_view reason) {
    fail<ConfigError>("runner.device", "expected auto, cpu, cuda or cuda:N, got ", quote(name), reason);
  };
  std::optional<at::Device> device;
  try {
    device.emplace(name == "auto" ? std::string("cuda") : name);
  } catch (const std::exception&) {
    fail_device("");
  }
  if (device->is_cuda()) {
    if (!cuda) {
      fail_device(" on a machine (or a LibTorch) without CUDA");
    }
    if (!device->has_index()) {
      device->set_index(static_cast<c10::DeviceIndex>(local_rank));
    }
    const int count = at::detail::getCUDAHooks().deviceCount();
    check<ConfigError>(device->index() < count, "runner.device", "expected cuda:", static_cast<int>(device->index()),
                       " of device ", quote(name), " on local rank ", local_rank, ", got ", count,
                       " CUDA device(s); where each process sees only its own, set device: cuda:0");
  } else if (!device->is_cpu()) {
    fail_device("");
  }
  return *device;
}

std::uint64_t generate_seed() {
  std::random_device entropy;
  return entropy();  // 32 bits, as in DanLing
}

}  // namespace

RunnerIdentity::RunnerIdentity(StoredConfig<RunnerConfig> stored) : config_(std::move(stored)) {
  validate(config());
  parallelism_ = std::make_unique<Parallelism>(read_process_identity());
  device_ = resolve_device(config().device, local_rank());
  if (device_.is_cuda()) {  // memory, events and generators without a device are then on this one, as in DanLing
    c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(device_);
  }
  config_id_ = danling::config_id(config());
  timestamp_ = make_timestamp();
  seed_ = config().seed ? static_cast<std::uint64_t>(*config().seed) : generate_seed();
  generators_seed_ = seed_;  // the constructor of a program draws the same numbers, for example its data, on all ranks
  seed_generators(seed_);
}

RunnerIdentity::~RunnerIdentity() = default;

void RunnerIdentity::use_seed(std::uint64_t seed) {
  seed_ = seed;
  seed_rank();
}

void RunnerIdentity::replace_parallelism(std::unique_ptr<Parallelism> parallelism) {
  parallelism_ = std::move(parallelism);
  has_met_ = true;
  seed_rank();
}

// From here on each rank draws different numbers; rank 0 continues as one process would.
void RunnerIdentity::seed_rank() {
  const std::uint64_t seed = parallelism_->seed(seed_);
  if (std::exchange(generators_seed_, seed) != seed) {
    seed_generators(seed);
  }
}

std::string RunnerIdentity::name() const {
  return config().name.value_or(concat(config().lineage, "-", config().experiment));
}

std::string RunnerIdentity::id() const { return make_run_id(code_id(), config_id_); }

const CodeIdentity& RunnerIdentity::code() const {
  if (code_ == nullptr) {
    code_ = std::make_unique<CodeIdentity>(read_code_identity());
  }
  return *code_;
}

const std::string& RunnerIdentity::code_id() const { return code().id; }

const Group& RunnerIdentity::group() const {
  check<StateError>(has_met_ || world_size() == 1, "runner.group", "expected a call after the ", world_size(),
                    " processes have met, in a hook from init_distributed on or after initialize(), got one before; "
                    "rank() and world_size() are known in the constructor");
  return parallelism_->group();
}
std::int64_t RunnerIdentity::rank() const { return parallelism_->identity().rank; }
std::int64_t RunnerIdentity::local_rank() const { return parallelism_->identity().local_rank; }
std::int64_t RunnerIdentity::world_size() const { return parallelism_->identity().world_size; }

}  // namespace danling::inline v0
