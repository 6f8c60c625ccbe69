// A runner whose program pushes the batches, shared by the tests of train_on_batch and evaluate_on_batch.
#pragma once

#include "fixture.hpp"

namespace runner_test {

/// A runner without datasets.
class HostedRunner : public dl::TorchRunner {
 public:
  explicit HostedRunner(const TinyConfig& config) : TorchRunner(config) {
    model = make_tiny_net(config);
    criterion = torch::nn::CrossEntropyLoss();
    metrics = make_tiny_metrics();
  }
  ~HostedRunner() override {
    logger().set_sink({});  // of a test whose variables are gone
    close();
  }
};

inline TinyConfig hosted(const Folder& folder) {
  TinyConfig config(folder);
  config.steps = 12;
  config.accum_steps = 2;
  config.log_interval = 3;
  config.checkpoint.interval = 4;
  config.sched.type = "cosine";
  config.max_grad_norm = 0.5;
  return config;
}

/// The batches of 48 points in order, pass after pass.
inline dl::Batch pushed(std::int64_t index) { return make_points(8, 8 * (index % 6)); }

}  // namespace runner_test
