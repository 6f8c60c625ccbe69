// A runner whose step is a test's function, run with recorded steps and without.
#pragma once

#include "recorded.hpp"

namespace runner_test {

using Body = std::function<dl::StepOutput(class OddRunner&, dl::Batch&)>;

/// Its step is a test's function.
class OddRunner : public dl::TorchRunner {
 public:
  explicit OddRunner(const TinyConfig& config) : TorchRunner(config) {
    model = torch::nn::Sequential(even_layer(), torch::nn::Tanh());
    criterion = torch::nn::MSELoss();
  }
  ~OddRunner() override { close(); }

  using TorchRunner::backward;
  using TorchRunner::step;
  Body body;
  std::function<void(OddRunner&)> in_update;
  std::int64_t steps = 0;
  at::Tensor weight() const { return model.as<torch::nn::Sequential>()->ptr<torch::nn::LinearImpl>(0)->weight; }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override { return body(*this, batch); }
  bool optimizer_step() override {
    if (in_update) {
      in_update(*this);
    }
    return TorchRunner::optimizer_step();
  }
};

struct Odd {
  std::string name;
  Body body;
  std::function<void(OddRunner&, std::int64_t)> between = {};  ///< before each step
  std::function<void(OddRunner&)> in_update = {};
  std::string refusal = {};  ///< expected; empty: replayed
  std::function<void(dl::Batch&, std::int64_t)> change = {};
};

inline dl::StepOutput plain(OddRunner& runner, dl::Batch& batch) {
  const at::Tensor prediction = runner.model(batch.input);
  const at::Tensor loss = runner.criterion(prediction, batch.target);
  runner.backward(loss);
  runner.step();
  return {prediction, loss};
}

struct OddEnd {
  dl::State weights;
  std::vector<double> meters;
  dl::CompileReport report;
};

inline OddEnd run_odd(const Odd& odd, bool recorded) {
  const EagerToRecord schedule;
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 40;
  config.optim.type = "sgd";
  config.optim.lr = 0.02;
  config.compile.enable = recorded;
  config.compile.verify = 2;
  OddRunner runner(config);
  runner.body = odd.body;
  runner.in_update = odd.in_update;
  std::vector<double> meters;
  for (std::int64_t i = 0; i < 40; ++i) {
    if (odd.between) {
      odd.between(runner, i);
    }
    dl::Batch batch{.input = wave(i), .target = wave(i + 1)};
    if (odd.change) {
      odd.change(batch, i);
    }
    runner.steps = i;
    meters.push_back(runner.train_on_batch(std::move(batch)).loss.item<double>());
    for (const auto& [name, meter] : runner.meters) {
      meters.push_back(std::get<double>(meter.average()));
    }
  }
  runner.finish_training();
  return {dl::clone(runner.model.state_dict()), meters, runner.compile_report()};
}

inline void check_odd(const Odd& odd) {
  INFO(odd.name);
  const OddEnd eager = run_odd(odd, false), recorded = run_odd(odd, true);
  CHECK(dl::first_difference(recorded.weights, eager.weights) == "");
  CHECK(recorded.meters == eager.meters);
  if (odd.refusal.empty()) {
    CHECK(recorded.report.replayed > 0);
    CHECK(recorded.report.refusals == std::vector<std::string>{});
  } else {
    REQUIRE_FALSE(recorded.report.refusals.empty());
    CHECK(recorded.report.refusals.front() == odd.refusal);
  }
}

/// Returns the result of `read` for a runner after 40 batches that a program pushes, with or without recorded steps.
template <class Runner, class BatchOf, class Read>
auto after_pushed(bool recorded, const BatchOf& batch_of, const Read& read) {
  const EagerToRecord schedule;
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 40;
  config.optim.type = "sgd";
  config.compile.enable = recorded;
  Runner runner(config);
  for (std::int64_t i = 0; i < 40; ++i) {
    runner.train_on_batch(batch_of(i));
  }
  runner.finish_training();
  CHECK((runner.compile_report().replayed > 20) == recorded);
  return read(runner);
}

}  // namespace runner_test
