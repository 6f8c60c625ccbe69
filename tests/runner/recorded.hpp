// How the tests of recorded steps make every step a candidate.
#pragma once

#include "fixture.hpp"

namespace runner_test {

/// Records at once, and keeps tapes that are not faster, for its lifetime.
class EagerToRecord {
 public:
  EagerToRecord() { danling::detail::tape_schedule() = {.warm = 0, .trial = 0}; }
  ~EagerToRecord() { danling::detail::tape_schedule() = before_; }
  EagerToRecord(const EagerToRecord&) = delete;
  EagerToRecord& operator=(const EagerToRecord&) = delete;

 private:
  danling::detail::TapeSchedule before_ = danling::detail::tape_schedule();
};

inline torch::nn::Linear even_layer() {
  torch::nn::Linear layer(4, 4);
  const at::NoGradGuard no_grad;
  layer->weight.copy_(torch::linspace(-1, 1, 16).view({4, 4}));
  layer->bias.zero_();
  return layer;
}

/// Rows of a batch, or of a gradient.
inline at::Tensor wave(std::int64_t seed, std::int64_t rows = 8) {
  return torch::sin(torch::arange(rows * 4, torch::kFloat) * 1.7 + static_cast<double>(seed)).view({rows, 4});
}

/// Why steps of `runner` are not replayed, after its training; "none".
inline std::string first_refusal(dl::TorchRunner& runner) {
  runner.train();
  const dl::CompileReport report = runner.compile_report();
  return report.refusals.empty() ? "none" : report.refusals.front();
}

}  // namespace runner_test
