// Training by epochs and by steps: counters, averages and files.
#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("TorchRunner: epochs train, evaluate and leave the files of a run", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.state().train.epoch == 3);
  CHECK(runner.state().train.global_step == 3 * 7);  // 50 records in batches of 8
  CHECK(runner.results().rows().size() == 3);
  const auto dir = runner.workspace().dir();
  for (const auto* name : {"results.json", "latest.json", "best.json", "metrics.jsonl", "checkpoints/latest.pth",
                           "checkpoints/best.pth", "checkpoints/model.pth", "metadata/config.full.yaml",
                           "metadata/config.canonical.yaml", "metadata/config.diff.yaml", "metadata/git.yaml"}) {
    INFO(name);
    CHECK(fs::exists(dir / name));
  }
}

TEST_CASE("TorchRunner: `steps` ends within a pass and evaluates there", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 17;  // two passes of 7 and 3 more
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.state().train.global_step == 17);
  CHECK(runner.state().train.epoch == 3);
  REQUIRE(runner.results().rows().size() == 1);
  CHECK(runner.results().rows()[0].index == 17);
  CHECK(runner.results().rows()[0].result.number("val.loss") != nullptr);
}

TEST_CASE("TorchRunner: the average loss and accuracy of an epoch are those over all its records", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.optim.lr = 1e-12;  // the model stays as it is
  config.optim.weight_decay = 0.0;
  config.dropout = 0;
  TinyRunner runner(config);
  runner.train();
  const auto points = make_points(50, 0);
  const auto prediction = runner.model(points.input);
  const double loss = torch::nn::functional::cross_entropy(prediction, points.target).item<double>();
  const double right = prediction.argmax(1).eq(points.target).to(torch::kDouble).mean().item<double>();
  const auto& result = runner.results().rows()[0].result;
  CHECK(*result.number("train.loss") == Approx(loss).epsilon(1e-5));
  CHECK(*result.number("train.acc") == Approx(right).epsilon(1e-9));
}

TEST_CASE("TorchRunner: intervals of 0 write no lines of metrics and keep no history", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.log_interval = 0;
  config.checkpoint.interval = 0;
  TinyRunner runner(config);
  runner.train();
  const auto dir = runner.workspace().dir();
  CHECK(read_file(dir / "metrics.jsonl").find("\"iteration\"") == std::string::npos);
  CHECK(fs::exists(dir / "checkpoints" / "latest.pth"));
  CHECK_FALSE(fs::exists(dir / "checkpoints" / "ckpt-e000003.pth"));
}

class NonFiniteRunner : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;

 protected:
  void backward(const at::Tensor& loss) override {
    TinyRunner::backward(loss);
    if (micro_batches % 3 == 0) {
      model.named_parameters()[0].second.mutable_grad().fill_(std::numeric_limits<float>::infinity());
    }
  }
};

TEST_CASE("TorchRunner: skip_nonfinite_grad skips the update and does not count it", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.skip_nonfinite_grad = true;
  NonFiniteRunner runner(config);
  runner.train();
  CHECK(runner.state().train.micro_step == 7);
  CHECK(runner.state().train.global_step == 5);  // the third and the sixth are skipped
  for (const auto& [name, parameter] : runner.model.named_parameters()) {
    INFO(name);
    CHECK(parameter.isfinite().all().item<bool>());
  }
}

TEST_CASE("TorchRunner: without a training split the error lists the datasets", "[runner]") {
  const Folder folder;
  TinyRunner runner{TinyConfig(folder)};
  runner.datasets.clear();
  runner.datasets["traim"] = Points{make_points(50, 0), false};
  CHECK(
      error_of<dl::ConfigError>([&] { runner.train(); }) ==
      "[runner.train] expected a training split, got none among the datasets 'traim'; set datasets[\"train\"], or name "
      "one in train_splits");
}

struct PairBatch {
  torch::Tensor left, right, label;
  std::int64_t size() const { return left.size(0); }
  PairBatch to(c10::Device device) const { return {left.to(device), right.to(device), label.to(device)}; }
};

struct Pairs {
  std::int64_t size() const { return 12; }
  PairBatch get_batch(std::span<const std::int64_t> indices) {
    const auto n = static_cast<std::int64_t>(indices.size());
    return {torch::ones({n, 2}), torch::ones({n, 2}), torch::ones({n, 1})};
  }
};

TEST_CASE("BasicTorchRunner: train_step receives batches of the program's type", "[runner]") {
  struct PairRunner : dl::BasicTorchRunner<PairBatch> {
    explicit PairRunner(const TinyConfig& config) : BasicTorchRunner(config) {
      model = torch::nn::Linear(4, 1);
      datasets["train"] = Pairs();
    }
    ~PairRunner() override { close(); }
    dl::StepOutput train_step(PairBatch& batch) override {
      const auto prediction = model(torch::cat({batch.left, batch.right}, 1));
      const auto loss = torch::mse_loss(prediction, batch.label);
      backward(loss);
      step();
      return {prediction, loss};
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  PairRunner runner(config);
  runner.train();
  CHECK(runner.state().train.global_step == 2);
}

}  // namespace
}  // namespace runner_test
