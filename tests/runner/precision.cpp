// Precisions without a loss scale: autocast and its context, fp64, tf32, and deterministic algorithms.
#include <ATen/Context.h>

#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("TorchRunner: bf16 trains under autocast, parameters stay float32", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.precision = "bf16";
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.model.named_parameters()[0].second.scalar_type() == at::kFloat);
  CHECK(std::isfinite(*runner.results().latest_score()));
}

TEST_CASE("PrecisionContext: restores what was set, also when nested", "[runner]") {
  const auto x = torch::ones({2, 2});
  {
    const dl::PrecisionContext outer(at::kCPU, at::kBFloat16);
    CHECK(torch::mm(x, x).scalar_type() == at::kBFloat16);
    {
      const dl::PrecisionContext inner(at::kCPU, std::nullopt);
      CHECK(torch::mm(x, x).scalar_type() == at::kBFloat16);
    }
  }
  CHECK(torch::mm(x, x).scalar_type() == at::kFloat);
}

// ---- fp64 -----------------------------------------------------------------------------------------------------------

TEST_CASE("fp64: weights, inputs and losses are float64; integers stay", "[runner]") {
  struct Runner : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::StepOutput train_step(dl::Batch& batch) override {
      auto output = TinyRunner::train_step(batch);
      CHECK(batch.input.scalar_type() == at::kDouble);
      CHECK(batch.target.scalar_type() == at::kLong);
      CHECK(output.loss.scalar_type() == at::kDouble);
      return output;
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.precision = "double";
  Runner runner(config);
  runner.criterion =
      torch::nn::CrossEntropyLoss(torch::nn::CrossEntropyLossOptions().weight(torch::tensor({1.0F, 2.0F, 1.0F})));
  runner.train();
  for (const auto& [name, value] : runner.model.named_parameters()) {
    CHECK(value.scalar_type() == at::kDouble);
  }
  CHECK(runner.infer("val").scalar_type() == at::kDouble);
  check_same(run_through(config), run_stopped(config, {3, 6}));
}

struct OwnBatch {
  at::Tensor input, target;
  std::int64_t size() const { return input.size(0); }
  OwnBatch to(c10::Device device) const { return {input.to(device), target.to(device)}; }
};
const at::Tensor& model_input(const OwnBatch& batch) { return batch.input; }
const at::Tensor& model_target(const OwnBatch& batch) { return batch.target; }

struct OwnPoints {
  std::int64_t size() const { return 8; }
  OwnBatch get_batch(std::span<const std::int64_t>) { return {torch::ones({8, 4}), torch::zeros({8}, at::kLong)}; }
  bool train() const { return true; }
};

TEST_CASE("fp64: a batch type that does not convert is refused before training", "[runner]") {
  struct Runner : dl::BasicTorchRunner<OwnBatch> {
    explicit Runner(const TinyConfig& config) : BasicTorchRunner(config) {
      model = make_tiny_net(config);
      criterion = torch::nn::CrossEntropyLoss();
      datasets["train"] = OwnPoints();
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.precision = "fp64";
  Runner runner(config);
  CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) ==
        "[runner.build_dataloaders] expected a batch type with to(at::ScalarType), or to_dtype(batch, at::ScalarType) "
        "in its namespace, for precision fp64, got a type with neither");
  runner.close();
}

// ---- settings of the process ----------------------------------------------------------------------------------------

TEST_CASE("tf32, deterministic: hold while a runner lives, and the settings before return with the last one",
          "[runner]") {
  const auto& context = at::globalContext();
  const Folder folder;
  TinyConfig config(folder);
  config.tf32 = true;
  config.deterministic = true;
  REQUIRE_FALSE(context.deterministicAlgorithms());
  const bool products = context.allowTF32CuBLAS();
  const bool convolutions = context.allowTF32CuDNN();
  const auto holds = [&](bool tf32) {
    return context.deterministicAlgorithms() && context.deterministicCuDNN() && context.deterministicMkldnn() &&
           context.deterministicFillUninitializedMemory() && !context.benchmarkCuDNN() &&
           context.allowTF32CuBLAS() == tf32 && context.allowTF32CuDNN() == tf32;
  };
  {
    auto first = std::make_unique<TinyRunner>(config);
    CHECK(holds(true));
    config.tf32 = false;
    const TinyRunner second(config);
    first.reset();
    CHECK(holds(false));
  }
  CHECK_FALSE(context.deterministicAlgorithms());
  CHECK_FALSE(context.deterministicMkldnn());
  CHECK(context.allowTF32CuBLAS() == products);
  CHECK(context.allowTF32CuDNN() == convolutions);
}

}  // namespace
}  // namespace runner_test
