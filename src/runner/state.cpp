#include <danling/runner/state.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/detail/CUDAHooksInterface.h>

namespace danling::inline v0 {
namespace {

c10::DeviceIndex cuda_device_count() {
  return at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : c10::DeviceIndex(0);
}

at::Generator cuda_generator(c10::DeviceIndex index) {
  return at::globalContext().defaultGenerator(at::Device(at::kCUDA, index));
}

}  // namespace

State RunnerTrainState::state_dict() const {
  State out;
  out["epoch"] = epoch;
  out["global_step"] = global_step;
  out["micro_step"] = micro_step;
  return out;
}

void RunnerTrainState::load_state_dict(const State& state) {
  epoch = state.at("epoch").integer();
  global_step = state.at("global_step").integer();
  micro_step = state.at("micro_step").integer();
}

State RunnerElasticState::state_dict() const {
  State out;
  out["restart_count"] = restart_count;
  return out;
}

void RunnerElasticState::load_state_dict(const State& state) { restart_count = state.at("restart_count").integer(); }

void RunnerRNGState::capture() {
  const at::Generator& cpu = at::detail::getDefaultCPUGenerator();
  torch_cpu = cpu.get_state();
  torch_cuda.clear();
  for (c10::DeviceIndex index = 0; index < cuda_device_count(); ++index) {
    torch_cuda.push_back(cuda_generator(index).get_state());
  }
}

void RunnerRNGState::restore() const {
  if (torch_cpu.defined()) {
    at::Generator cpu = at::detail::getDefaultCPUGenerator();
    cpu.set_state(torch_cpu);
  }
  // A run may move between machines with and without devices; with another number of devices it cannot be exact.
  const auto devices = static_cast<std::size_t>(cuda_device_count());
  if (torch_cuda.empty() || devices == 0) {
    return;
  }
  check<StateError>(torch_cuda.size() == devices, "runner.restore_rng", "expected generator states of ", devices,
                    " CUDA devices, got ", torch_cuda.size(),
                    "; make the same number visible, or put state.rng into checkpoint.exclude_from_loading");
  for (std::size_t index = 0; index < devices; ++index) {
    cuda_generator(static_cast<c10::DeviceIndex>(index)).set_state(torch_cuda[index]);
  }
}

State RunnerRNGState::state_dict() const {
  State out;
  out["torch_cpu"] = torch_cpu.defined() ? State(torch_cpu) : State();
  out["torch_cuda"] = State::List(torch_cuda.begin(), torch_cuda.end());
  return out;
}

void RunnerRNGState::load_state_dict(const State& state) {
  const State& cpu = state.at("torch_cpu");
  torch_cpu = cpu.is_null() ? at::Tensor() : cpu.tensor();
  torch_cuda.clear();
  if (const State& cuda = state.at("torch_cuda"); !cuda.is_null()) {  // null: from Python, without devices
    for (const auto& item : cuda.items()) {
      torch_cuda.push_back(item.tensor());
    }
  }
}

State RunnerState::state_dict() const {
  State out;
  out["train"] = train.state_dict();
  out["elastic"] = elastic.state_dict();
  out["rng"] = rng.state_dict();
  return out;
}

void RunnerState::load_state_dict(const State& state) {
  // A part may be missing: checkpoint.exclude_from_loading removes parts.
  if (const State* part = state.find("train")) {
    train.load_state_dict(*part);
  }
  if (const State* part = state.find("elastic")) {
    elastic.load_state_dict(*part);
  }
  if (const State* part = state.find("rng")) {
    rng.load_state_dict(*part);
  }
}

void seed_generators(std::uint64_t seed) { at::manual_seed(seed); }

}  // namespace danling::inline v0
