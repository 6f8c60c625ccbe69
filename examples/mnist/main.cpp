// Handwritten digits with a small convolutional net: about 99 % on the test images in a few seconds on one core.
//
//   ./dev mnist                                     the bundled digits (examples/mnist/data)
//   mnist --data.root /path/to/MNIST --epochs 3     MNIST's own files, gzip'd or not
#include <torch/torch.h>

#include <danling/danling.hpp>

namespace dl = danling;

struct MnistConfig : dl::RunnerConfig {
  struct Data : dl::Config {
    std::string root = MNIST_DATA_ROOT;
    double val = 0.1;
    void fields(dl::Fields& f) override {
      f("root", root, "folder with the four IDX files of MNIST").non_semantic();
      f("val", val, "share of the training images that is held out for validation");
    }
  } data;
  std::int64_t channels = 16;
  double dropout = 0.25;

  MnistConfig() {
    seed = 1031;
    num_threads = 1;  // more threads do not help a net this small
    epochs = 20;
    score_name = "acc";
    test_splits = {"test"};
    dataloader.batch_size = 64;
    optim.type = "adamw";
    optim.lr = 3e-3;
    sched.type = "cosine";
    sched.scaling = "numerical";
  }

  void fields(dl::Fields& f) override {
    f("data", data, "the images");
    f("channels", channels, "channels of the first convolution; the second has twice as many");
    f("dropout", dropout, "share of hidden features dropped in training");
  }
};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(const MnistConfig& config)
      : conv1(register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, config.channels, 3).padding(1)))),
        conv2(register_module(
            "conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(config.channels, 2 * config.channels, 3).padding(1)))),
        dropout(register_module("dropout", torch::nn::Dropout(config.dropout))),
        fc(register_module("fc", torch::nn::Linear(2 * config.channels * 7 * 7, 10))) {}

  torch::Tensor forward(torch::Tensor x) {                     // [N, 1, 28, 28]
    x = torch::max_pool2d(torch::relu(conv1->forward(x)), 2);  // [N, C, 14, 14]
    x = torch::max_pool2d(torch::relu(conv2->forward(x)), 2);  // [N, 2C, 7, 7]
    return fc->forward(dropout->forward(x.flatten(1)));        // [N, 10]
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::Dropout dropout;
  torch::nn::Linear fc;
};
TORCH_MODULE(Net);

class MnistRunner : public dl::TorchRunner {
 public:
  explicit MnistRunner(const MnistConfig& config) : TorchRunner(config) {
    model = Net(config);
    criterion = torch::nn::CrossEntropyLoss();
    const auto images = dl::data::mnist(config.data.root, dl::data::DatasetSplit::train);
    const auto parts = dl::data::random_split(images, {1 - config.data.val, config.data.val}, /*seed=*/0);
    datasets["train"] = parts[0];
    datasets["val"] = parts[1];
    datasets["test"] = dl::data::mnist(config.data.root, dl::data::DatasetSplit::test);
    metrics = dl::accuracy_metrics(10);
  }
};

int main(int argc, char** argv) { return dl::run<MnistRunner, MnistConfig>(argc, argv); }
