// Warnings of LibTorch in a run, and of a step that returns no loss.
#include "fixture.hpp"

namespace runner_test {
namespace {

TinyConfig two_epochs_in(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 2;
  return config;
}

/// A linear model with outputs [N, 1], over 16 records of these targets.
struct OfLine : dl::TorchRunner {
  explicit OfLine(const TinyConfig& config, const at::Tensor& target) : TorchRunner(config) {
    model = torch::nn::Linear(2, 1);
    criterion = torch::nn::MSELoss();
    for (const char* split : {"train", "val"}) {
      datasets[split] = dl::data::TensorDataset(torch::ones({16, 2}), target);
    }
  }
  ~OfLine() override { close(); }
};

TEST_CASE("train_step: a loss returned in the place of the prediction is one warning", "[runner]") {
  struct Swapped : OfLine {
    using OfLine::OfLine;
    dl::StepOutput train_step(dl::Batch& batch) override {
      const at::Tensor loss = (model(batch.input) - batch.target).pow(2).mean();
      backward(loss);
      step();
      if (!meter.empty()) {
        meters[meter].update(loss);
      }
      return {loss};
    }
    std::string meter;
  };
  const Folder folder;
  for (const char* meter : {"", "lrap"}) {
    Swapped runner(two_epochs_in(folder), torch::ones({16, 1}));
    runner.meter = meter;
    std::vector<std::string> warnings;
    collect_warnings(runner, warnings);
    runner.train({"train"});
    if (runner.meter.empty()) {
      CHECK(warnings == std::vector<std::string>{"train_step returned no loss in split 'train', and updated no meter; "
                                                 "return {.prediction = ..., .loss = loss}"});
    } else {
      CHECK(warnings.empty());
    }
  }
}

TEST_CASE("TorchRunner: a warning of LibTorch is logged once in a run, also from a step of the program", "[runner]") {
  struct Own : OfLine {
    using OfLine::OfLine;
    dl::StepOutput train_step(dl::Batch& batch) override {
      const at::Tensor loss = torch::nn::functional::mse_loss(model(batch.input), batch.target);
      backward(loss);
      step();
      return {.loss = loss};
    }
    dl::StepOutput evaluate_step(dl::Batch&) override { return {}; }
  };
  const Folder folder;
  Own runner(two_epochs_in(folder), torch::ones({16}));
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.train({"train"});
  CHECK(std::count_if(warnings.begin(), warnings.end(),
                      [](const std::string& warning) { return warning.starts_with("[libtorch]"); }) == 1);
  CHECK(warnings.at(0) ==
        "[libtorch] Using a target size ([8]) that is different to the input size ([8, 1]). This will likely lead to "
        "incorrect results due to broadcasting. Please ensure they have the same size. (logged once)");
}

TEST_CASE("TorchRunner: a program's own handler of LibTorch's warnings stays", "[runner]") {
  struct Counts : c10::WarningHandler {
    int number = 0;
    void process(const c10::Warning&) override { ++number; }
  };
  const Folder folder;
  OfLine runner(two_epochs_in(folder), torch::ones({16}));
  runner.criterion = torch::nn::MSELoss();
  Counts counts;
  const c10::WarningUtils::WarningHandlerGuard guard(&counts);
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.train({"train"});
  CHECK(counts.number == 8);  // two epochs of two batches, in training and in evaluation
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], StartsWith("criterion: "));
}

TEST_CASE("TorchRunner: two warnings of one place are both logged", "[runner]") {
  struct Warns : OfLine {
    using OfLine::OfLine;
    dl::StepOutput train_step(dl::Batch& batch) override {
      TORCH_WARN(state().train.global_step % 2 == 0 ? "even" : "odd");
      return OfLine::train_step(batch);
    }
  };
  const Folder folder;
  Warns runner(two_epochs_in(folder), torch::ones({16, 1}));
  runner.criterion = torch::nn::MSELoss();
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.train({"train"});
  CHECK(warnings == std::vector<std::string>{"[libtorch] even (logged once)", "[libtorch] odd (logged once)"});
}

}  // namespace
}  // namespace runner_test
