// Errors in a step: their type, the place that they name, and the exit code of the program.
#include <torch/csrc/jit/api/module.h>

#include "fixture.hpp"

namespace runner_test {

/// Calls these functions before its steps.
struct ThrowingRunner : TinyRunner {
  using TinyRunner::TinyRunner;
  ~ThrowingRunner() override { close(); }
  std::function<void()> in_train, in_evaluate, in_infer;
  std::int64_t after = 0;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (in_train && state().train.global_step == after) {
      in_train();
    }
    return TinyRunner::train_step(batch);
  }
  dl::StepOutput evaluate_step(dl::Batch& batch) override {
    if (in_evaluate) {
      in_evaluate();
    }
    return TinyRunner::evaluate_step(batch);
  }
  at::Tensor infer_step(dl::Batch& batch) override {
    if (in_infer) {
      in_infer();
    }
    return TinyRunner::infer_step(batch);
  }
};

TEST_CASE("TorchRunner: an error of danling in a step keeps its type and names split, epoch and step", "[runner]") {
  const Folder folder;
  ThrowingRunner runner(two_epochs(folder));
  SECTION("in training") {
    runner.after = 9;  // of 7 in an epoch
    runner.in_train = [] { dl::detail::fail<dl::DataError>("my.step", "expected a tree, got a bush"); };
    CHECK(error_of<dl::DataError>([&] { runner.train(); }) ==
          "[my.step] expected a tree, got a bush; in train_step of split 'train', epoch 2, step 10, with input Float "
          "[8, 4] and target Long [8]");
  }
  SECTION("in the evaluation of an epoch") {
    runner.in_evaluate = [] { throw dl::MetricError("[my.metric] no"); };
    CHECK(error_of<dl::MetricError>([&] { runner.train(); }) ==
          "[my.metric] no; in evaluate_step of split 'val', epoch 1, step 7, with input Float [8, 4] and target Long "
          "[8]");
  }
  SECTION("in inference") {
    runner.in_infer = [] { throw dl::ConfigError("[my.config] no"); };
    CHECK(error_of<dl::ConfigError>([&] { runner.infer("val"); }) ==
          "[my.config] no; in infer_step of split 'val', epoch 0, step 0, with input Float [8, 4] and target Long [8]");
  }
  SECTION("of a sample, which it still names") {
    runner.in_train = [] { throw dl::data::CollateError(3, "[my.collate] no"); };
    try {
      runner.train();
      FAIL("expected an error");
    } catch (const dl::data::CollateError& error) {
      CHECK(error.sample() == 3);
    }
  }
}

TEST_CASE("TorchRunner: an error of LibTorch in a step is its first sentence, with the original nested", "[runner]") {
  const Folder folder;
  TinyConfig config = two_epochs(folder);
  TinyRunner runner(config);
  const std::string place =
      "; in train_step of split 'train', epoch 1, step 1, with input Float [8, 4] and target Long [8]";
  SECTION("of a module") {
    runner.model = torch::nn::Sequential(torch::nn::Linear(5, 3));
    try {
      runner.train();
      FAIL("expected an error");
    } catch (const dl::Error& error) {
      CHECK(error.what() == "[libtorch] mat1 and mat2 shapes cannot be multiplied (8x4 and 5x3)" + place);
      CHECK_THROWS_AS(std::rethrow_if_nested(error), c10::Error);
    }
  }
  SECTION("of TorchScript, without the stack of its functions") {
    torch::jit::Module module("Wrong");
    module.register_parameter("weight", torch::ones({3, 5}), false);
    module.define("def forward(self, input):\n  return torch.linear(input, self.weight)\n");
    runner.model = module;
    CHECK_THAT(error_of<dl::Error>([&] { runner.train(); }),
               ContainsSubstring("mat1 and mat2 shapes cannot be multiplied (8x4 and 5x3)" + place) &&
                   !ContainsSubstring("\n") && !ContainsSubstring("Traceback"));
  }
}

TEST_CASE("TorchRunner: errors of LibTorch that do not say what to change get a remedy", "[runner]") {
  const auto error_with = [](const at::Tensor& input, const at::Tensor& target, auto criterion) {
    const Folder folder;
    TinyRunner runner(two_epochs(folder));
    runner.criterion = criterion;
    runner.model = torch::nn::Linear(4, 3);
    runner.datasets["train"] = dl::data::TensorDataset(input, target);
    const std::string text = error_of<dl::Error>([&] { runner.train(); });
    return text.substr(0, text.find("; in train_step"));
  };
  const torch::nn::CrossEntropyLoss classes;
  const at::Tensor input = torch::ones({8, 4});
  CHECK(error_with(input, torch::full({8}, 3), classes) ==
        "[libtorch] Target 3 is out of bounds; targets are class indices from 0 to C - 1, for outputs [N, C], or "
        "`ignore_index`");
  CHECK(error_with(input, torch::zeros({8, 1}, torch::kLong), classes) ==
        "[libtorch] 0D or 1D target tensor expected, multi-target not supported; class indices have shape [N], for "
        "outputs [N, C]; use target.squeeze(-1)");
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13  // before, LibTorch had the words of an input of a wrong dtype
  CHECK_THAT(error_with(input, torch::zeros({8}), classes),
             EndsWith("; convert the class indices with .to(torch::kLong)"));
#endif
  CHECK_THAT(error_with(input.to(torch::kLong), torch::zeros({8}, torch::kLong), classes),
             EndsWith("; convert the inputs to the dtype of the model"));
  CHECK_THAT(error_with(input, torch::zeros({8, 3}, torch::kLong), torch::nn::BCEWithLogitsLoss()),
             EndsWith("; convert these with .to(torch::kFloat)"));
  CHECK_THAT(error_with(input * 1000, torch::full({8, 3}, 0.5), torch::nn::BCELoss()),
             EndsWith("; BCEWithLogitsLoss takes outputs of a linear layer"));
}

TEST_CASE("TorchRunner: other errors of LibTorch get no remedy", "[runner]") {
  const Folder folder;
  ThrowingRunner runner(two_epochs(folder));
  runner.in_train = [] { torch::ones({2}).select(0, 3); };
  CHECK(error_of<dl::Error>([&] { runner.train(); }) ==
        "[libtorch] select(): index 3 out of range for tensor of size [2] at dimension 0; in train_step of split "
        "'train', epoch 1, step 1, with input Float [8, 4] and target Long [8]");
}

TEST_CASE("TorchRunner: an error of the standard library names the step; other classes pass as they are", "[runner]") {
  struct OwnError : std::runtime_error {
    OwnError() : std::runtime_error("out of fuel") {}
    int litres = 3;
  };
  const Folder folder;
  ThrowingRunner runner(two_epochs(folder));
  const std::string place =
      "; in train_step of split 'train', epoch 1, step 1, with input Float [8, 4] and target Long [8]";
  SECTION("the standard library's") {
    runner.in_train = [] { std::map<int, int>().at(1); };
    try {
      runner.train();
      FAIL("expected an error");
    } catch (const dl::Error& error) {
      CHECK(error.what() == "map::at" + place);
      CHECK_THROWS_AS(std::rethrow_if_nested(error), std::out_of_range);
    }
  }
  SECTION("a class of the program, whose place is logged") {
    runner.in_train = [] { throw OwnError(); };
    try {
      runner.train();
      FAIL("expected an error");
    } catch (const OwnError& error) {
      CHECK(error.litres == 3);
      CHECK(error.what() == std::string("out of fuel"));
    }
    runner.close();
    CHECK(count(logs_of(runner.workspace().dir()), "out of fuel" + place) == 1);
  }
  SECTION("what is no exception") {
    runner.in_train = [] { throw 42; };
    CHECK_THROWS_AS(runner.train(), int);
    runner.close();
    CHECK(count(logs_of(runner.workspace().dir()), "an exception that is not a std::exception" + place) == 1);
  }
  SECTION("a stop") {
    runner.in_train = [] { throw dl::Stopped(15, "stopped"); };
    CHECK(error_of<dl::Stopped>([&] { runner.train(); }) == "stopped");
  }
}

TEST_CASE("TorchRunner: an unreduced loss in evaluation is an error", "[runner]") {
  const Folder folder;
  TinyRunner runner(two_epochs(folder));
  runner.criterion = torch::nn::CrossEntropyLoss(torch::nn::CrossEntropyLossOptions().reduction(torch::kNone));
  CHECK(error_of<dl::StateError>([&] { runner.evaluate(); }) ==
        "[runner.evaluate_step] expected a loss of one element, got shape [8]; reduce it by its mean; in evaluate_step "
        "of split 'val', epoch 0, step 0, with input Float [8, 4] and target Long [8]");
}

TEST_CASE("TorchRunner: an unreduced loss that train_step returns is an error", "[runner]") {
  struct Unreduced : TinyRunner {
    using TinyRunner::TinyRunner;
    ~Unreduced() override { close(); }
    dl::StepOutput train_step(dl::Batch& batch) override {
      dl::StepOutput output = TinyRunner::train_step(batch);
      output.loss = torch::ones({2, 3});
      return output;
    }
  };
  const Folder folder;
  Unreduced runner(two_epochs(folder));
  CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
        "[runner.train_step] expected a loss of one element, got shape [2, 3]; reduce it by its mean; in train_step of "
        "split 'train', epoch 1, step 1, with input Float [8, 4] and target Long [8]");
}

TEST_CASE("TorchRunner: an unreduced loss in training is an error", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  runner.criterion = torch::nn::CrossEntropyLoss(torch::nn::CrossEntropyLossOptions().reduction(torch::kNone));
  CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
        "[runner.backward] expected a loss of one element, got shape [8]; reduce it by its mean; in train_step of "
        "split 'train', epoch 1, step 1, with input Float [8, 4] and target Long [8]");
}

TEST_CASE("TorchRunner: backward and step outside of a training step are errors", "[runner]") {
  struct Open : TinyRunner {
    using TinyRunner::backward;
    using TinyRunner::TinyRunner;
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      auto output = TinyRunner::evaluate_step(batch);
      step();
      return output;
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  Open runner(config);
  CHECK(error_of<dl::StateError>([&] { runner.step(); }) ==
        "[runner.step] expected a call from train_step, got one outside of a training step");
  CHECK(error_of<dl::StateError>([&] { runner.backward(torch::ones({})); }) ==
        "[runner.backward] expected a call from train_step, got one outside of a training step");
  CHECK(error_of<dl::StateError>([&] { runner.evaluate(); }) ==
        "[runner.step] expected a call from train_step, got one outside of a training step, in mode evaluate; in "
        "evaluate_step of split 'val', epoch 0, step 0, with input Float [8, 4] and target Long [8]");
}

TEST_CASE("run: after a thrown int the program ends with the exit code of a failure", "[runner]") {
  struct Thrower : TinyRunner {
    explicit Thrower(const TinyConfig& config) : TinyRunner(config) { throw 42; }
  };
  const Folder folder;
  std::string words[] = {"program", "--workspace_root", folder.path().string()};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  CHECK(dl::run<Thrower, TinyConfig>(3, arguments) == dl::exit_failure);
}

}  // namespace runner_test
