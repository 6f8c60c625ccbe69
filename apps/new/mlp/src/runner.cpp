// Puts model, data, loss and metrics together.
#include "runner.hpp"

#include <torch/torch.h>

#include <danling/data/subset.hpp>
#include <danling/metrics/factory.hpp>
#include <danling/metrics/functional.hpp>

#include "data.hpp"
#include "model.hpp"

Runner::Runner(const Config& config) : TorchRunner(config) {
  const auto parts = danling::data::random_split(spirals(config.points, config.noise), {0.8, 0.2}, /*seed=*/0);
  datasets["train"] = parts[0];
  datasets["val"] = parts[1];
  model = Net(config);
  criterion = torch::nn::CrossEntropyLoss();
  metrics = danling::accuracy_metrics(2);
}
