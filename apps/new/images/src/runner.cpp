// Puts model, data, loss and metrics together.
#include "runner.hpp"

#include <torch/torch.h>

#include <danling/data/map_batches.hpp>
#include <danling/data/transforms.hpp>
#include <danling/metrics/factory.hpp>
#include <danling/metrics/functional.hpp>

#include "data.hpp"
#include "model.hpp"

Runner::Runner(const Config& config) : TorchRunner(config) {
  const auto train = images(config.root, "train", config.size), val = images(config.root, "val", config.size);
  if (train->classes() != val->classes()) {
    throw danling::DataError("[images] expected the same classes in 'train' and 'val' of " + config.root +
                             ", got others");
  }
  const auto normalize = danling::data::transforms::normalize({0.3}, {0.3});  // of whole batches, which is cheaper
  datasets["train"] = danling::data::map_batches(train, normalize);
  datasets["val"] = danling::data::map_batches(val, normalize);
  const auto num_classes = static_cast<std::int64_t>(train->classes().size());
  model = Net(config, num_classes);
  criterion = torch::nn::CrossEntropyLoss();
  metrics = danling::accuracy_metrics(num_classes);
}
