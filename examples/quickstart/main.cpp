#include <torch/torch.h>

#include <danling/danling.hpp>

namespace dl = danling;

struct Config : dl::RunnerConfig {
  Config() { seed = 1, epochs = 5, optim.type = "adamw", optim.lr = 1e-2, dataloader.batch_size = 64; }
};

class Circle : public dl::TorchRunner {  // learns which points of a square lie in a circle
 public:
  explicit Circle(const Config& config) : TorchRunner(config) {
    const auto points = torch::rand({8192, 2}) * 2 - 1;
    const auto inside = points.square().sum(1).lt(0.6).to(torch::kLong);
    const auto data = std::make_shared<dl::data::TensorDataset>(points, inside);
    const auto parts = dl::data::random_split(data, {0.8, 0.2}, /*seed=*/0);
    datasets["train"] = parts[0];
    datasets["val"] = parts[1];
    model = torch::nn::Sequential(torch::nn::Linear(2, 32), torch::nn::Tanh(), torch::nn::Linear(32, 2));
    criterion = torch::nn::CrossEntropyLoss();
    metrics = dl::accuracy_metrics(2);
  }
};

int main(int argc, char** argv) { return dl::run<Circle, Config>(argc, argv); }
