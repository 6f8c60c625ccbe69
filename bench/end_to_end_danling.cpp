// A contestant of end_to_end.cpp: the program that a user of danling writes, and its report to the benchmark.
#include <chrono>
#include <fstream>
#include <numeric>

#include <torch/torch.h>

#include <danling/danling.hpp>

namespace dl = danling;

namespace {

struct Config : dl::RunnerConfig {
  std::string data;

  Config() {
    seed = 1;
    num_threads = 1;
    epochs = 1;
    optim.type = "adamw";
    optim.lr = 1e-3;
    dataloader.batch_size = 64;
    dataloader.drop_last = false;  // as the other programs
  }
  void fields(dl::Fields& f) override { f("data", data, "folder with the images"); }
};

class Runner : public dl::TorchRunner {
 public:
  explicit Runner(const Config& config) : TorchRunner(config) {
    images_ = dl::data::mnist(config.data, dl::data::DatasetSplit::train, {.flatten = true});
    datasets["train"] = images_;
    model = torch::nn::Sequential(torch::nn::Linear(784, 128), torch::nn::ReLU(), torch::nn::Linear(128, 10));
    criterion = torch::nn::CrossEntropyLoss();
  }

  /// For the benchmark: the end of the first step, steps, samples, and the loss on the first 1,000 images.
  void report(std::ofstream out) {
    std::vector<std::int64_t> first(1000);
    std::iota(first.begin(), first.end(), 0);
    const torch::NoGradGuard no_grad;
    const dl::Batch batch = images_->get_batch(first);
    const auto loss = criterion(model(batch.input), batch.target).item<double>();
    out << std::fixed << first_step_ << ' ' << steps_ << ' ' << samples_ << ' ' << loss << '\n';
  }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    samples_ += batch.target.size(0);
    auto output = TorchRunner::train_step(batch);
    if (++steps_ == 1) {
      first_step_ = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    }
    return output;
  }

 private:
  std::shared_ptr<dl::data::TensorDataset> images_;
  double first_step_ = 0;
  std::int64_t steps_ = 0, samples_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  std::string program = argv[0];
  std::string data = std::string("--data=") + argv[1];
  std::string folder = std::string("--workspace_root=") + argv[2];
  std::array<char*, 4> arguments = {program.data(), data.data(), folder.data(), nullptr};
  return dl::run<Runner, Config>(3, arguments.data(), [argv](Runner& runner) {
    runner.train();
    runner.report(std::ofstream(std::string(argv[2]) + "/result.txt"));
  });
}
