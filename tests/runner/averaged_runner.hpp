// The run of torch's recipe for EMA and SWA (tests/golden/averaging.py), and weights to compare averages with.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "fixture.hpp"

namespace runner_test {

inline const nlohmann::json& golden_run() {
  static const nlohmann::json document =
      nlohmann::json::parse(read_file(fs::path(DANLING_SOURCE_DIR) / "tests/golden/averaging.json"));
  return document["run"];
}

inline at::Tensor golden_tensor(const nlohmann::json& values, at::IntArrayRef shape) {
  return torch::tensor(values.get<std::vector<double>>()).to(torch::kFloat).view(shape);
}

/// Golden inputs and targets in order, three batches of four.
class RecipeRunner : public dl::TorchRunner {
 public:
  explicit RecipeRunner(const TinyConfig& config) : TorchRunner(config) {
    auto net = torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 1));
    const at::NoGradGuard guard;
    for (const auto& item : net->named_parameters()) {
      item.value().copy_(golden_tensor(golden_run()["initial"][item.key()], item.value().sizes()));
    }
    model = net;
    criterion = torch::nn::MSELoss();
    dl::Batch all;
    all.input = golden_tensor(golden_run()["inputs"], {12, 3});
    all.target = golden_tensor(golden_run()["targets"], {12, 1});
    datasets["train"] = Points{all, true};
    datasets["val"] = Points{all, false};
  }
  ~RecipeRunner() override { close(); }
};

inline TinyConfig recipe(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 6;
  config.dataloader.batch_size = 4;
  config.dataloader.shuffle = false;
  config.optim.type = "sgd";
  config.optim.lr = 0.05;
  config.sched.type = "step";
  config.sched.interval = "epoch";
  config.sched.step_size = 2;
  config.sched.gamma = 0.5;
  return config;
}

inline void switch_on_ema(TinyConfig& config) {
  config.ema.enabled = true;
  config.ema.decay = 0.9;
}

inline void switch_on_swa(TinyConfig& config) {
  config.swa.enabled = true;
  config.swa.start = 3;
  config.swa.lr = 0.03;
  config.swa.anneal = 2;
}

inline dl::State weights_of(const dl::ModelHandle& model) { return dl::clone(model.state_dict()); }

inline void check_same_weights(const dl::State& a, const dl::State& b) {  // in any order
  CHECK(a.map().size() == b.map().size());
  for (const auto& entry : a.map()) {
    CAPTURE(entry.key.string());
    CHECK(dl::first_difference(entry.value, b.at(entry.key)) == "");
  }
}

}  // namespace runner_test
