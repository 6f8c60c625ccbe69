// Terms of the loss that the config sets: weights, schedules, losses by type.
#include <cmath>
#include <numbers>

#include "parse.hpp"
#include "terms_runner.hpp"

namespace runner_test {
namespace {

TinyConfig config_of(const Folder& folder, const std::vector<std::pair<std::string, std::string>>& keys) {
  TinyConfig config(folder);
  config.epochs = 1;
  for (const auto& [key, value] : keys) {
    dl::set_option(config, key, value);
  }
  return config;
}

TEST_CASE("losses: a weight of the config replaces that of the program's term", "[runner]") {
  const Folder folder;
  TermsRunner runner(config_of(folder, {{"losses.size.weight", "0.25"}}));
  const auto& row = runner.train().latest()->result;
  for (const std::string split : {"train", "val"}) {
    CAPTURE(split);
    CHECK(*row.number(split + ".losses.ce.0") == 1.0);
    CHECK(*row.number(split + ".losses.size.0") == 0.25);
    CHECK(*row.number(split + ".loss") ==
          Approx(*row.number(split + ".losses.ce.1") + 0.25 * *row.number(split + ".losses.size.1")).epsilon(1e-5));
  }
}

/// The weight of `size` in each micro-batch of one epoch.
std::vector<double> weights_in_force(const TinyConfig& config) {
  TermsRunner runner(config);
  std::vector<double> out;
  runner.before_step = [&](TinyRunner& self, std::int64_t) { out.push_back(self.criterion.losses()->weight("size")); };
  runner.train();
  return out;
}

void check_close(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i] == Approx(expected[i]).margin(1e-12));
  }
}

TEST_CASE("losses: a weight follows its schedule, by optimizer steps", "[runner]") {
  const Folder folder;
  const std::pair<std::string, std::string> linear{"losses.size.schedule", "Linear"};
  check_close(weights_in_force(config_of(folder, {linear, {"losses.size.begin", "2"}, {"losses.size.length", "4"}})),
              {0, 0, 0, 0.125, 0.25, 0.375, 0.5});
  // Three micro-batches to a step; without a length until the end of the run, after three steps.
  check_close(weights_in_force(config_of(folder, {linear, {"accum_steps", "3"}, {"losses.size.weight", "6"}})),
              {0, 0, 0, 2, 2, 2, 4});
  // Downwards, along a cosine.
  const auto cosine = [](double progress) { return 1 + (1 + std::cos(std::numbers::pi * progress)) / 2; };
  check_close(weights_in_force(config_of(folder, {{"losses.size.schedule", "cosine"},
                                                  {"losses.size.from", "2"},
                                                  {"losses.size.weight", "1"},
                                                  {"losses.size.length", "4"}})),
              {2, cosine(0.25), cosine(0.5), cosine(0.75), 1, 1, 1});
  check_close(weights_in_force(config_of(folder, {{"losses.size.schedule", "exponential"},
                                                  {"losses.size.from", "0.01"},
                                                  {"losses.size.weight", "1"},
                                                  {"losses.size.length", "4"}})),
              {0.01, std::pow(10, -1.5), 0.1, std::pow(10, -0.5), 1, 1, 1});
}

TEST_CASE("losses: reported weights are those in force, in training and in evaluation", "[runner]") {
  const Folder folder;
  auto config = config_of(
      folder, {{"losses.size.schedule", "linear"}, {"losses.size.weight", "1"}, {"losses.size.length", "14"}});
  config.epochs = 3;
  TermsRunner runner(config);
  const auto& rows = runner.train().rows();
  // The last micro-batch of the first epoch makes update 7, its evaluation follows it.
  CHECK(*rows[0].result.number("train.losses.size.0") == Approx(6.0 / 14));
  CHECK(*rows[0].result.number("val.losses.size.0") == Approx(7.0 / 14));
  CHECK(*rows[2].result.number("train.losses.size.0") == 1.0);
}

TEST_CASE("losses: a run with scheduled weights resumes bit for bit", "[runner]") {
  TinyConfig config;
  config.epochs = 3;
  config.accum_steps = 2;
  dl::set_option(config, "losses.ce.type", "focal");
  dl::set_option(config, "losses.ce.gamma", "1.5");
  dl::set_option(config, "losses.smooth.type", "cross_entropy");
  dl::set_option(config, "losses.smooth.label_smoothing", "0.1");
  dl::set_option(config, "losses.smooth.schedule", "polynomial");
  dl::set_option(config, "losses.smooth.length", "9");
  check_same(run_stopped<TermsRunner>(config, {3, 6}), run_through(config));
}

TEST_CASE("losses: a run that is stopped after the last batch of a pass reports the weights that it trained with",
          "[runner]") {
  class StopsAtEnd : public dl::Callback {
   public:
    std::string name() const override { return "stops_at_end"; }
    void on_step(const dl::StepEvent& event) override {
      if (event.runner.state().train.micro_step == 14) {  // of epoch 2, which ends with a short window
        event.runner.request_stop();
      }
    }
  };
  const auto run = [](bool stops) {
    const Folder folder;
    auto config = config_of(folder, {{"losses.size.schedule", "linear"}, {"losses.size.weight", "1"}});
    config.epochs = 3;
    config.auto_resume = true;
    if (stops) {
      TermsRunner runner(config);
      runner.add(StopsAtEnd());
      CHECK_THROWS_AS(runner.train(), dl::Stopped);
    }
    TermsRunner runner(config);
    runner.train();
    CHECK(runner.close());
    return outcome_of(runner.workspace().dir());
  };
  check_same(run(true), run(false));
}

TEST_CASE("losses: losses by type replace the program's criterion", "[runner]") {
  const auto train = [](bool by_config) {
    const Folder folder;
    auto config = config_of(folder, {});
    config.dropout = 0;
    if (by_config) {
      parse_options(config, "--losses.all.type", "cross_entropy", "--losses.all.label_smoothing", "0.2",
                    "--losses.all.class_weights", "[1, 2, 0.5]");
    }
    TinyRunner runner(config);
    if (!by_config) {
      runner.criterion = torch::nn::CrossEntropyLoss(
          torch::nn::CrossEntropyLossOptions().label_smoothing(0.2).weight(torch::tensor({1.0F, 2.0F, 0.5F})));
    }
    const auto& result = runner.train().latest()->result;
    return std::pair(*result.number("train.loss"), *result.number("val.loss"));
  };
  const auto [train_loss, val_loss] = train(true);
  const auto [expected_train, expected_val] = train(false);
  CHECK(train_loss == Approx(expected_train).epsilon(1e-5));
  CHECK(val_loss == Approx(expected_val).epsilon(1e-5));
}

/// TinyRunner over points of which every third has no label, and the last batch has none.
struct PartialRunner : TinyRunner {
  explicit PartialRunner(const TinyConfig& config) : TinyRunner(config) {
    dl::Batch points = make_points(config.records, 0);
    points.target.slice(0, 0, c10::nullopt, 3).fill_(-100);
    points.target.slice(0, 48).fill_(-100);
    datasets["train"] = Points{points, true};
    dl::Batch evaluated = make_points(20, 1000);
    evaluated.target.slice(0, 3).fill_(-100);  // its last two batches have no label
    datasets["val"] = Points{evaluated, false};
    metrics = nullptr;
  }
  ~PartialRunner() override { close(); }
};

TEST_CASE("losses: ignored targets do not count, in windows, averages and evaluations", "[runner]") {
  const auto train = [](dl::CriterionHandle criterion) {
    const Folder folder;
    auto config = config_of(folder, {{"accum_steps", "7"}, {"dataloader.train.shuffle", "false"}});
    config.dropout = 0;
    config.optim.type = "sgd";
    PartialRunner runner(config);
    runner.criterion = std::move(criterion);
    runner.initialize();
    const at::Tensor before = runner.model.named_parameters()[0].second.detach().clone();
    dl::Batch all = make_points(50, 0);
    all.target.slice(0, 0, c10::nullopt, 3).fill_(-100);
    all.target.slice(0, 48).fill_(-100);
    const at::Tensor loss = torch::nn::functional::cross_entropy(runner.model(all.input), all.target);
    const at::Tensor gradient = torch::autograd::grad({loss}, {runner.model.named_parameters()[0].second})[0];
    const auto& result = runner.train().latest()->result;
    CHECK(torch::allclose(runner.model.named_parameters()[0].second, before - 0.05 * gradient, 1e-5, 1e-6));
    CHECK(*result.number("train.loss") == Approx(loss.item<double>()).epsilon(1e-5));
    dl::Batch val = make_points(20, 1000);
    const torch::NoGradGuard no_grad;
    const at::Tensor expected =
        torch::nn::functional::cross_entropy(runner.model(val.input.slice(0, 0, 3)), val.target.slice(0, 0, 3));
    CHECK(*result.number("val.loss") == Approx(expected.item<double>()).epsilon(1e-5));
    if (const double* term = result.number("train.losses.ce.1")) {
      CHECK(*term == Approx(loss.item<double>()).epsilon(1e-5));
      CHECK(*result.number("val.losses.ce.1") == Approx(expected.item<double>()).epsilon(1e-5));
    }
  };
  train(torch::nn::CrossEntropyLoss());
  train(dl::nn::CrossEntropyLoss());
  train(std::make_shared<dl::nn::CrossEntropyLoss>());
  train(dl::Losses({{"ce", dl::nn::CrossEntropyLoss()}}));
  train(dl::Losses({{"ce", dl::nn::losses().at("focal")({.gamma = 0.0})}}));
}

TEST_CASE("losses: options of the config that fit no term are refused", "[runner]") {
  const auto error = [](const std::vector<std::pair<std::string, std::string>>& keys, bool named = true) {
    const Folder folder;
    const auto config = config_of(folder, keys);
    return error_of<dl::ConfigError>([&] {
      if (named) {
        TermsRunner(config).initialize();
      } else {
        TinyRunner(config).initialize();
      }
    });
  };
  CHECK(error_of_options("--losses.mse", "0.5") ==
        "[config.parse] expected a mapping for 'losses.mse', such as {weight: 0.5}, got '0.5' (command line)");
  CHECK(error_of_options("--losses.mse", "mse") ==
        "[config.parse] expected a mapping for 'losses.mse', such as {type: mse}, got 'mse' (command line)");
  CHECK(error({{"losses.sizes.weight", "1"}}) ==
        "[runner.losses] expected one of ce, size in 'losses', got 'sizes'; did you mean 'size'?");
  CHECK(error({{"losses.ce.weight", "1"}}, false) ==
        "[runner.losses] expected losses with names as criterion for 'losses.ce', got one loss; assign Losses, or set "
        "'losses.ce.type'");
  CHECK(error({{"losses.size.schedule", "constant"}, {"losses.size.weight", "1"}}) ==
        "[runner.losses] expected 'losses.size.schedule' as a curve that reaches the weight, got constant, which "
        "stays at 'from'; remove the key for a constant weight");
  CHECK(error({{"losses.ce.label_smoothing", "0.1"}}) ==
        "[runner.losses] expected 'losses.ce.type' with 'losses.ce.label_smoothing', got none");
  CHECK(error({{"losses.ce.type", "focal"}, {"losses.size.weight", "1"}}) ==
        "[runner.losses] expected a type for each of 'losses', or for none, got some without");
  CHECK(error({{"losses.ce.type", "focl"}}) ==
        "[runner.losses] expected one of binary_cross_entropy, cross_entropy, focal, l1, mse, sigmoid_focal in "
        "'losses.ce.type', got 'focl'; did you mean 'focal'?");
  CHECK(error({{"losses.ce.type", "focal"}, {"losses.ce.alpha", "0.5"}}) ==
        "[runner.losses] expected options of focal (reduction, ignore_index, gamma, class_weights), got 'alpha' in "
        "'losses.ce'");
  CHECK(error({{"losses.size.from", "1"}}) ==
        "[runner.losses] expected 'losses.size.schedule' with 'losses.size.from', got none");
  CHECK(error({{"losses.size.schedule", "cosin"}}).starts_with("[runner.losses] expected one of "));
  CHECK_THAT(error({{"losses.size.schedule", "cosin"}}),
             EndsWith(" in 'losses.size.schedule', got 'cosin'; did you mean 'cosine'?"));
  CHECK(error({{"losses.size.schedule", "exponential"}}) ==
        "[runner.losses] expected 'losses.size.from' and its weight above 0 for exponential, got 0.0 and 0.5");
}

}  // namespace
}  // namespace runner_test
