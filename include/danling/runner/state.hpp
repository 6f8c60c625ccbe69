// RunnerState: the counters and generators of a run.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Training progress. Only the loops and `step()` write it.
struct RunnerTrainState {
  std::int64_t epoch = 0;        ///< epochs finished (step mode: rounds over the splits)
  std::int64_t global_step = 0;  ///< optimizer updates applied
  std::int64_t micro_step = 0;   ///< micro-batches, with each window rounded up to `accum_steps`

  State state_dict() const;
  void load_state_dict(const State& state);
};

/// Restart count from a supervisor such as torchrun.
struct RunnerElasticState {
  std::int64_t restart_count = 0;

  State state_dict() const;
  void load_state_dict(const State& state);
};

/// Snapshots of LibTorch's default generators.
struct RunnerRNGState {
  at::Tensor torch_cpu;                ///< uint8; undefined before the first capture
  std::vector<at::Tensor> torch_cuda;  ///< one per visible device

  /// Reads the states of the generators. Does not wait for the device.
  void capture();
  /// Restores the generators.
  /// @throws StateError when snapshot and process have different numbers of CUDA devices, neither of which is 0
  void restore() const;

  State state_dict() const;
  void load_state_dict(const State& state);
};

/// State of a runner without its components; under "state" in a checkpoint.
struct RunnerState {
  RunnerTrainState train;
  RunnerElasticState elastic;
  RunnerRNGState rng;

  State state_dict() const;
  void load_state_dict(const State& state);
};

/// Seeds LibTorch's default generators, on every device.
void seed_generators(std::uint64_t seed);

}  // namespace danling::inline v0
