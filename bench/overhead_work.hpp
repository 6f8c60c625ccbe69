// The net, the batches and the config of the overhead benchmark.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <danling/danling.hpp>

namespace bench {

namespace dl = danling;

using Clock = std::chrono::steady_clock;

constexpr std::int64_t batch_size = 64;
constexpr std::int64_t num_batches = 256;

inline double microseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

/// The net of overhead_frameworks.py.
inline torch::nn::Sequential make_net(std::int64_t hidden) {
  torch::manual_seed(1);
  torch::nn::Linear first(784, hidden);  // in this order, as in Python: arguments have none
  torch::nn::Linear last(hidden, 10);
  return torch::nn::Sequential(first, torch::nn::ReLU(), last);
}

/// The batches of overhead_frameworks.py.
inline std::vector<dl::Batch> make_batches() {
  torch::manual_seed(2);
  // Classes that a linear net can learn, so that losses fall as in a real run.
  const auto prototypes = torch::randn({10, 784});
  const auto target = torch::randint(10, {num_batches * batch_size}, torch::kLong);
  const auto input = prototypes.index_select(0, target).add_(torch::randn({num_batches * batch_size, 784}), 2);
  // Parts of one tensor: temporaries of a batch's size would leave holes, into which the allocator would place the
  // gradients of one of the loops, out of the caches.
  std::vector<dl::Batch> batches;
  for (std::int64_t i = 0; i < num_batches; ++i) {
    dl::Batch batch;
    batch.target = target.narrow(0, i * batch_size, batch_size);
    batch.input = input.narrow(0, i * batch_size, batch_size);
    batches.push_back(std::move(batch));
  }
  return batches;
}

struct BenchConfig : dl::RunnerConfig {
  BenchConfig() {
    seed = 1;
    console = false;
    log = false;
    checkpoint.load_only = true;
  }
  void fields(dl::Fields&) override {}
};

/// The batches in order, repeated.
struct Feed {
  const std::vector<dl::Batch>* batches;
  std::int64_t step = 0;
  std::int64_t size() const { return std::int64_t{1} << 40; }
  dl::Batch get_batch(std::span<const std::int64_t>) {
    return (*batches)[static_cast<std::size_t>(step++ % num_batches)];
  }
};

}  // namespace bench
