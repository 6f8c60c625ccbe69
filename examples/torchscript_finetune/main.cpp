// A TorchScript model from Python knows the digits 0 to 4. A new training of its last layer adds 5 to 9.
//
//   torchscript_finetune                          from 50 % to 96 % of the test images in a second
//   torchscript_finetune --optim.freeze null      trains all layers
//
// The run ends with checkpoints/model.pt, which torch.jit.load of Python reads. make_model.py wrote the first model.
#include <cstdio>

#include <torch/script.h>
#include <torch/torch.h>

#include <danling/danling.hpp>

namespace dl = danling;

struct FinetuneConfig : dl::RunnerConfig {
  std::string file = MODEL;

  FinetuneConfig() {
    seed = 1;
    num_threads = 1;
    epochs = 10;
    score_name = "acc";
    dataloader.batch_size = 64;
    optim.type = "adamw";
    optim.lr = 3e-3;
    optim.freeze = {{"^features"}};  // the parameters of the file that keep their values
  }

  void fields(dl::Fields& f) override { f("file", file, "TorchScript model"); }
};

class FinetuneRunner : public dl::TorchRunner {
 public:
  explicit FinetuneRunner(const FinetuneConfig& config) : TorchRunner(config) {
    model = torch::jit::load(config.file);
    criterion = torch::nn::CrossEntropyLoss();
    const auto [train, val] =
        dl::data::hold_out(dl::data::mnist(DIGITS, dl::data::DatasetSplit::train), 140, /*seed=*/0);
    datasets["train"] = train;
    datasets["val"] = val;
    datasets["test"] = dl::data::mnist(DIGITS, dl::data::DatasetSplit::test);
    metrics = dl::accuracy_metrics(10);
  }

  double test_accuracy() { return *evaluate({"test"}).number("test.acc"); }
};

int main(int argc, char** argv) {
  return dl::run<FinetuneRunner, FinetuneConfig>(argc, argv, [](FinetuneRunner& runner) {
    const double before = runner.test_accuracy();
    runner.train({"train"}, {"val"});
    const double after = runner.test_accuracy();
    std::printf("test acc: %.4f as loaded, %.4f finetuned\n", before, after);
  });
}
