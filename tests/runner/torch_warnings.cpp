// Warnings of LibTorch in a run, and of a step that returns no loss.
#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("train_step: a loss returned in the place of the prediction is one warning", "[runner]") {
  struct Swapped : Regression {
    using Regression::Regression;
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
    Swapped runner(two_epochs(folder), torch::ones({16, 1}));
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

TEST_CASE("train_step: metrics in the place of a loss are no warning", "[runner]") {
  struct MetricsOnly : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::StepOutput train_step(dl::Batch& batch) override {
      const at::Tensor prediction = model(batch.input);
      backward(torch::nn::functional::cross_entropy(prediction, batch.target));
      step();
      update_metrics(prediction, batch.target);
      return {};
    }
  };
  const Folder folder;
  MetricsOnly runner(two_epochs(folder));
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.train();
  CHECK(warnings.empty());
}

TEST_CASE("TorchRunner: a warning of LibTorch is logged once in a run, also from a step of the program", "[runner]") {
  struct Own : Regression {
    using Regression::Regression;
    dl::StepOutput train_step(dl::Batch& batch) override {
      const at::Tensor loss = torch::nn::functional::mse_loss(model(batch.input), batch.target);
      backward(loss);
      step();
      return {.loss = loss};
    }
    dl::StepOutput evaluate_step(dl::Batch&) override { return {}; }
  };
  const Folder folder;
  Own runner(two_epochs(folder), torch::ones({16}));
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
  Regression runner(two_epochs(folder), torch::ones({16}));
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
  struct Warns : Regression {
    using Regression::Regression;
    dl::StepOutput train_step(dl::Batch& batch) override {
      TORCH_WARN(state().train.global_step % 2 == 0 ? "even" : "odd");
      return Regression::train_step(batch);
    }
  };
  const Folder folder;
  Warns runner(two_epochs(folder), torch::ones({16, 1}));
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.train({"train"});
  CHECK(warnings == std::vector<std::string>{"[libtorch] even (logged once)", "[libtorch] odd (logged once)"});
}

TEST_CASE("TorchRunner: a run inside a callback of another logs its own warnings", "[runner]") {
  const Folder folder, other;
  Regression outer(two_epochs(folder), torch::ones({16, 1})), inner(two_epochs(other), torch::ones({16}));
  std::vector<std::string> of_outer, of_inner;
  collect_warnings(outer, of_outer);
  collect_warnings(inner, of_inner);
  struct Trains : dl::Callback {
    explicit Trains(Regression& runner) : inner(runner) {}
    void on_run_begin(const dl::RunEvent&) override { inner.train({"train"}); }
    void on_run_end(const dl::RunEvent&) override { TORCH_WARN("after it"); }
    Regression& inner;
  };
  outer.add(Trains(inner));
  outer.train({"train"});
  CHECK(of_outer == std::vector<std::string>{"[libtorch] after it (logged once)"});
  REQUIRE(of_inner.size() == 1);
  CHECK_THAT(of_inner[0], StartsWith("criterion: "));
}

}  // namespace
}  // namespace runner_test
