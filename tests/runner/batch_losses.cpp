// Losses and metrics over a batch type of the program.
#include "fixture.hpp"

namespace runner_test {
namespace {

/// A batch with a member for the prediction.
struct Cloud {
  at::Tensor input, target, prediction;
  std::int64_t size() const { return input.size(0); }
  Cloud to(c10::Device) const { return *this; }
};
struct Clouds {
  dl::Batch all;
  std::int64_t size() const { return all.size(); }
  Cloud get_batch(std::span<const std::int64_t> indices) {
    const auto index = torch::tensor(at::ArrayRef<std::int64_t>(indices.data(), indices.size()), torch::kLong);
    return {all.input.index_select(0, index), all.target.index_select(0, index), {}};
  }
};
struct Right : dl::BatchMetric<Cloud> {
  bool higher_better() const override { return true; }
  dl::MetricValue compute(const Cloud& batch) override { return batch.prediction.argmax(1).eq(batch.target); }
};
struct Entropy : dl::Loss<Cloud> {
  dl::MetricValue compute(const Cloud& batch) override {
    return torch::nn::functional::cross_entropy(batch.prediction, batch.target);
  }
};

class CloudRunner : public dl::BasicTorchRunner<Cloud> {
 public:
  explicit CloudRunner(const TinyConfig& config) : BasicTorchRunner(config) {
    model = make_tiny_net(config);
    criterion = dl::BatchLosses<Cloud>({{"entropy", std::make_shared<Entropy>()}});
    metrics = dl::BatchMetrics<Cloud>({{"right", std::make_shared<Right>()}});
    datasets["train"] = Clouds{make_points(48, 0)};
    datasets["val"] = Clouds{make_points(20, 1000)};
  }
  ~CloudRunner() override { close(); }
};

TEST_CASE("BasicTorchRunner: the default steps update metrics and losses over the program's batch type", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.score_name = "right";
  CloudRunner runner(config);
  const auto& results = runner.train();
  CHECK(results.latest()->result.number("train.right") != nullptr);
  const auto points = make_points(20, 1000);
  const torch::NoGradGuard no_grad;
  runner.model.train(false);
  const auto right = runner.model(points.input).argmax(1).eq(points.target).to(torch::kDouble).mean();
  CHECK(*results.latest()->result.number("val.right") == Approx(right.item<double>()).epsilon(1e-12));
  const auto& val = std::get<dl::Result>(*results.latest()->result.find("val"));
  const auto& losses = std::get<dl::Result>(*val.find("losses"));
  CHECK(std::get<std::vector<double>>(*losses.find("entropy"))[1] == Approx(*val.number("loss")).epsilon(1e-5));
  CHECK(results.higher_is_better());
}

/// A batch without a target.
struct Lonely {
  torch::Tensor input;
  torch::Tensor prediction;
  std::int64_t size() const { return input.size(0); }
  Lonely to(c10::Device device) const { return {input.to(device), prediction}; }
};
struct LonelyData {
  std::int64_t size() const { return 32; }
  Lonely get_batch(std::span<const std::int64_t> indices) {
    return {torch::ones({static_cast<std::int64_t>(indices.size()), 4}), {}};
  }
};
struct Size : dl::Loss<Lonely> {
  dl::MetricValue compute(const Lonely& batch) override { return batch.prediction.square().mean(1); }
};

TEST_CASE("BasicTorchRunner: one of several losses is reported as a pair, and can be the score", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.score_name = "losses.entropy.1";
  CloudRunner runner(config);
  const auto& results = runner.train();
  CHECK_FALSE(results.higher_is_better());
  double lowest = 1e9;
  for (const auto& row : results.rows()) {
    lowest = std::min(lowest, *row.result.number("val.losses.entropy.1"));
    CHECK(*row.result.number("val.losses.entropy.0") == 1);
    CHECK(row.result.number("val.losses.entropy.2") == nullptr);
    CHECK(row.result.number("val.losses.entropy.x") == nullptr);
  }
  CHECK(*results.best_score() == lowest);
  runner.close();
  CHECK_THAT(logs_of(runner.workspace().dir()), ContainsSubstring(" losses.entropy [1.0000, "));
}

TEST_CASE("BasicTorchRunner: losses over a batch without a target need no metrics", "[runner]") {
  class LonelyRunner : public dl::BasicTorchRunner<Lonely> {
   public:
    explicit LonelyRunner(const TinyConfig& config) : BasicTorchRunner(config) {
      model = torch::nn::Linear(4, 3);
      criterion = dl::BatchLosses<Lonely>({{"size", std::make_shared<Size>()}});
      datasets["train"] = LonelyData{};
    }
    ~LonelyRunner() override { close(); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  LonelyRunner runner(config);
  const auto& last = runner.train().latest()->result;
  CHECK(last.number("train.loss") != nullptr);
}

TEST_CASE("TorchRunner: metrics or losses over another batch type are an error", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  const std::string place =
      "; in train_step of split 'train', epoch 1, step 1, with input Float [8, 4] and target Long [8]";
  SECTION("metrics") {
    runner.metrics = dl::BatchMetrics<Cloud>({{"right", std::make_shared<Right>()}});
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.update_metrics] expected metrics of predictions and targets (Metrics) or over this runner's batch "
          "type (BatchMetrics), got another kind in split 'train'; update them in your train_step and "
          "evaluate_step" +
              place);
  }
  SECTION("losses") {
    runner.criterion = dl::BatchLosses<Cloud>({{"entropy", std::make_shared<Entropy>()}});
    CHECK(
        error_of<dl::StateError>([&] { runner.train(); }) ==
        "[runner.criterion] expected losses of (prediction, target) or over this runner's batch type, got losses over "
        "another; call them in your own train_step and evaluate_step" +
            place);
  }
}

}  // namespace
}  // namespace runner_test
