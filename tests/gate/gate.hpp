// Shared by the programs of the gate: a stop at a chosen place, and a small learning problem.
#pragma once

#include <csignal>
#include <cstdlib>

#include <torch/torch.h>

#include <danling/danling.hpp>

namespace gate {

namespace dl = danling;

struct Config : dl::RunnerConfig {
  Config() {
    seed = 7;
    num_threads = 1;
    console = false;
    device = "cpu";
    log_interval = 3;
    dataloader.batch_size = 8;
  }
};

/// Sends the process a SIGTERM before the training micro-batch that DANLING_GATE_STOP_AT names, counted from 1.
template <class B>
class Stopped : public dl::BasicTorchRunner<B> {
 public:
  using dl::BasicTorchRunner<B>::BasicTorchRunner;

 protected:
  dl::StepOutput train_step(B& batch) override {
    if (++count_ == at_) {
      std::raise(SIGTERM);
    }
    return dl::BasicTorchRunner<B>::train_step(batch);
  }

 private:
  static std::int64_t place() {
    const char* text = std::getenv("DANLING_GATE_STOP_AT");
    return text == nullptr ? 0 : std::atoll(text);
  }
  std::int64_t at_ = place();
  std::int64_t count_ = 0;
};

/// Points on three arcs.
inline dl::Batch points(std::int64_t size, std::int64_t from) {
  const auto angle = torch::arange(from, from + size, torch::kDouble) * 2.399963;
  const auto label = torch::arange(from, from + size, torch::kLong) % 3;
  const auto radius = 1.0 + label.to(torch::kDouble);
  dl::Batch out;
  out.input = torch::stack({radius * angle.cos(), radius * angle.sin(), radius, angle.sin()}, 1).to(torch::kFloat);
  out.target = label;
  return out;
}

inline dl::data::TensorDataset dataset(std::int64_t size, std::int64_t from) {
  const auto all = points(size, from);
  return dl::data::TensorDataset(all.input, all.target);
}

inline torch::nn::Sequential net() {
  return torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::ReLU(), torch::nn::Dropout(0.25),
                               torch::nn::Linear(16, 3));
}

}  // namespace gate
