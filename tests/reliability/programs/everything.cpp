// A program for a config that switches on at once what a run must resume: scaling, averages, schedules driven by a
// metric, adapters, recompute and losses. Its model has what these act on: attention-free blocks with dropout, batch
// normalization, biases and layer norms.
//
//   everything --config everything.yaml
#include <torch/torch.h>

#include <danling/danling.hpp>
#include <danling/nn/recompute.hpp>

namespace dl = danling;

struct EverythingConfig : dl::RunnerConfig {
  EverythingConfig() {
    console = false;
    device = "cpu";
    num_threads = 1;
  }
};

struct BlockImpl : torch::nn::Module, dl::nn::Recomputable {
  explicit BlockImpl(std::int64_t width)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        in(register_module("in", torch::nn::Linear(width, 2 * width))),
        dropout(register_module("dropout", torch::nn::Dropout(0.2))),
        out(register_module("out", torch::nn::Linear(2 * width, width))) {}

  at::Tensor forward(const at::Tensor& x) {
    return recomputed([this](const at::Tensor& h) { return h + out(dropout(torch::gelu(in(norm(h))))); }, x);
  }

  torch::nn::LayerNorm norm;
  torch::nn::Linear in;
  torch::nn::Dropout dropout;
  torch::nn::Linear out;
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl()
      : stem(register_module("stem", torch::nn::Linear(4, 16))),
        batch_norm(register_module("batch_norm", torch::nn::BatchNorm1d(16))),
        first(register_module("first", Block(16))),
        second(register_module("second", Block(16))),
        head(register_module("head", torch::nn::Linear(16, 3))) {}

  at::Tensor forward(const at::Tensor& x) { return head(second(first(batch_norm(stem(x))))); }

  torch::nn::Linear stem;
  torch::nn::BatchNorm1d batch_norm;
  Block first, second;
  torch::nn::Linear head;
};
TORCH_MODULE(Net);

class EverythingRunner : public dl::TorchRunner {
 public:
  explicit EverythingRunner(const EverythingConfig& config) : TorchRunner(config) {
    model = Net();
    const auto points = [](std::int64_t size, double from) {
      const auto angle = torch::arange(size, torch::kFloat) * 2.4 + from;
      const auto label = torch::arange(size, torch::kLong) % 3;
      const auto radius = 1 + label.to(torch::kFloat) + 0.4 * torch::sin(7 * angle);
      return dl::data::TensorDataset(torch::stack({radius * angle.cos(), radius * angle.sin(), radius, angle.sin()}, 1),
                                     label);
    };
    criterion = torch::nn::CrossEntropyLoss();  // replaced by those of the config
    datasets["train"] = points(92, 0);
    datasets["val"] = points(30, 0.7);
    datasets["held"] = points(30, 1.3);
    using namespace dl::metrics;
    metrics = multiclass_metrics(3, {.mode = Mode::stream}, {multiclass_accuracy(3, {.average = Average::micro})});
  }
};

int main(int argc, char** argv) { return dl::run<EverythingRunner, EverythingConfig>(argc, argv); }
