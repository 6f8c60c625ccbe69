// Mistakes in a train_step: missing calls, losses and gradients that are not finite, metrics without values.
#include "fixture.hpp"

namespace runner_test {
namespace {

/// The warnings of one training run.
template <class Runner>
std::vector<std::string> warnings_of(const TinyConfig& config) {
  std::vector<std::string> out;
  Runner runner(config);
  collect_warnings(runner, out);
  runner.train();
  return out;
}

template <int kind>
class Careless : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    const auto prediction = model(batch.input);
    auto loss = torch::nn::functional::cross_entropy(prediction, batch.target);
    if (kind == 1) {
      loss.backward();
    } else if (kind >= 2) {
      backward(loss);
    }
    if (kind == 3 && state().train.global_step >= 3) {
      loss = loss * std::numeric_limits<double>::quiet_NaN();
    }
    step();
    return {prediction, loss};
  }
};

TinyConfig config_in(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 2;
  return config;
}

TEST_CASE("train_step: without backward(loss) step() is an error", "[runner]") {
  const Folder folder;
  Careless<0> runner(config_in(folder));
  CHECK_THAT(
      error_of<dl::StateError>([&] { runner.train(); }),
      ContainsSubstring("[runner.step] expected a call of backward(loss) in train_step before step(), got none, and no "
                        "parameter has a gradient"));
}

TEST_CASE("train_step: loss.backward() is one warning, and metrics without values are one for each split", "[runner]") {
  const Folder folder;
  CHECK(warnings_of<Careless<1>>(config_in(folder)) ==
        std::vector<std::string>{
            "runner.step: a train_step calls step() without backward(loss): its gradients are not weighted by the "
            "samples of the accumulation window, nor reduced over processes; call backward(loss) in place of "
            "loss.backward()",
            "the metrics of split 'train' received no values; call update_metrics in your train_step"});
}

TEST_CASE("train_step: a split whose targets are all ignored is a warning about its labels", "[runner]") {
  const Folder folder;
  const std::string split = GENERATE(as<std::string>{}, "train", "val");
  const auto warnings_with = [&](std::int64_t from) {
    TinyRunner runner(config_in(folder));
    dl::Batch points = split == "train" ? make_points(50, 0) : make_points(20, 1000);
    points.target.slice(0, from).fill_(-100);
    runner.datasets[split] = Points{points, split == "train"};
    std::vector<std::string> out;
    collect_warnings(runner, out);
    runner.train();
    return out;
  };
  const std::string expected =
      dl::detail::concat("no target of split '", split,
                         "' counts (ignore_index), so its loss and metrics have no values; check the labels of its "
                         "dataset");
  const auto warnings = warnings_with(0);
  CHECK(std::count(warnings.begin(), warnings.end(), expected) == 1);
  const auto advises_a_call = [](const std::string& text) { return text.find("update_metrics") != std::string::npos; };
  CHECK(std::none_of(warnings.begin(), warnings.end(), advises_a_call));
  const auto one_counts = warnings_with(1);
  CHECK(std::count(one_counts.begin(), one_counts.end(), expected) == 0);
}

TEST_CASE("train_step: metrics without values are about the step if any target counts", "[runner]") {
  struct Ignoring : Careless<2> {
    explicit Ignoring(const TinyConfig& config) : Careless<2>(config) {
      dl::Batch points = make_points(50, 0);
      points.target.slice(0, 25).fill_(-100);
      datasets["train"] = Points{points, true};
    }
  };
  const Folder folder;
  const auto warnings = warnings_of<Ignoring>(config_in(folder));
  CHECK(std::count(warnings.begin(), warnings.end(),
                   "the metrics of split 'train' received no values; call update_metrics in your train_step") == 1);
}

TEST_CASE("train: a metric with a name of the runner is an error before training", "[runner]") {
  const Folder folder;
  const auto named = [](const char* name) { return dl::StreamMetrics({{name, dl::metrics::multiclass_accuracy(3)}}); };
  const std::string expected =
      "expected metrics without a name of the runner (loss, lr, split, mode, epoch, global_step, iteration, "
      "telemetry), "
      "got ";
  for (const char* name : {"loss", "lr", "epoch", "split", "telemetry"}) {
    TinyRunner runner(config_in(folder));
    runner.metrics = named(name);
    CHECK(error_of<dl::ConfigError>([&] { runner.initialize(); }) ==
          dl::detail::concat("[runner.build_metrics] ", expected, "'", name, "' in `metrics`; rename it"));
  }
  SECTION("of an evaluation") {
    TinyRunner runner(config_in(folder));
    runner.evaluate_metrics = named("loss");
    CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) ==
          dl::detail::concat("[runner.build_metrics] ", expected, "'loss' in `evaluate_metrics`; rename it"));
    CHECK(runner.micro_batches == 0);
  }
  SECTION("set after initialize()") {
    TinyRunner runner(config_in(folder));
    runner.initialize();
    runner.train_metrics = named("loss");
    CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) ==
          dl::detail::concat("[runner.train] ", expected, "'loss' in `train_metrics`; rename it"));
    CHECK(runner.micro_batches == 0);
  }
  SECTION("a part of such a name is free") {
    TinyRunner runner(config_in(folder));
    runner.metrics = named("loss_rank");
    runner.train();
    CHECK(runner.state().train.epoch == 2);
  }
}

TEST_CASE("train_step: a loss that is not finite is a warning with split and step, or stops the run", "[runner]") {
  const Folder folder;
  TinyConfig config = config_in(folder);
  config.epochs = 1;
  config.log_interval = 2;
  CHECK(
      warnings_of<Careless<3>>(config) ==
      std::vector<std::string>{
          "the loss is not finite: nan in split 'train', epoch 1, by step 5; set on_nonfinite: stop to end such a run",
          "the metrics of split 'train' received no values; call update_metrics in your train_step"});
  config.on_nonfinite = "stop";
  Careless<3> runner(config);
  CHECK(error_of<dl::NonFiniteError>([&] { runner.train(); }) ==
        "[runner.loss] expected a finite loss, got nan in split 'train', epoch 1, by step 5 (on_nonfinite: stop); "
        "earlier checkpoints are intact");
}

TEST_CASE("train_step: the log has the number of skipped updates", "[runner]") {
  class Skipping : public TinyRunner {
   public:
    using TinyRunner::TinyRunner;

   protected:
    dl::StepOutput train_step(dl::Batch& batch) override {
      if (state().train.micro_step == 1 || state().train.micro_step == 2) {
        batch.input = batch.input / 0.0;
      }
      return TinyRunner::train_step(batch);
    }
  };
  const Folder folder;
  TinyConfig config = config_in(folder);
  config.epochs = 1;
  config.log_interval = 0;
  config.skip_nonfinite_grad = true;
  const auto warnings = warnings_of<Skipping>(config);
  REQUIRE(warnings.size() == 2);
  CHECK_THAT(warnings[0], ContainsSubstring("the loss is not finite: nan in split 'train'"));
  CHECK(warnings[1] == "gradients were not finite: 2 updates were skipped by step 5, 2 in all (skip_nonfinite_grad)");
}

TEST_CASE("train_step: by steps a run that skips all updates of a pass ends with a warning or an error", "[runner]") {
  struct Broken : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::StepOutput train_step(dl::Batch& batch) override {
      const auto prediction = model(batch.input);
      const auto loss =
          torch::nn::functional::cross_entropy(prediction, batch.target) * std::numeric_limits<double>::quiet_NaN();
      backward(loss);
      step();
      return {prediction, loss};
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 10;
  config.skip_nonfinite_grad = true;
  SECTION("with warnings") {
    const auto warnings = warnings_of<Broken>(config);
    REQUIRE(warnings.size() == 3);
    CHECK_THAT(warnings[0], ContainsSubstring("the loss is not finite: nan in split 'train', epoch 1, by step 0"));
    CHECK(warnings[1] ==
          "gradients were not finite: 14 updates were skipped by step 0, 14 in all (skip_nonfinite_grad)");
    CHECK(warnings[2] == "train: a whole pass made no update; stopped at step 0 of 10");
  }
  SECTION("or as an error, with on_nonfinite: stop") {
    config.on_nonfinite = "stop";
    Broken runner(config);
    const std::string error = error_of<dl::NonFiniteError>([&] { runner.train(); });
    CHECK(error ==
          dl::detail::concat("[runner.loss] expected a finite loss, got nan in split 'train', epoch 1, after step 0 "
                             "(on_nonfinite: stop); its batch is in ",
                             (runner.workspace().dir() / "bad_batches" / "step-0.pth").string(),
                             "; earlier checkpoints are intact"));
  }
}

TEST_CASE("train_step: a loss that does not depend on the optimizer's parameters is an error", "[runner]") {
  struct Replaced : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::StepOutput train_step(dl::Batch& batch) override {
      const auto prediction = other_->forward(batch.input);
      const auto loss = torch::nn::functional::cross_entropy(prediction, batch.target);
      backward(loss);
      step();
      return {prediction, loss};
    }
    torch::nn::Sequential other_ = make_tiny_net(TinyConfig());
  };
  const Folder folder;
  Replaced runner(config_in(folder));
  CHECK_THAT(error_of<dl::StateError>([&] { runner.train(); }),
             ContainsSubstring(
                 "[runner.step] expected gradients of the optimizer's parameters after backward(loss), got none: "
                 "the loss does not depend on them; was the model replaced after initialize(), or were gradients "
                 "zeroed?"));
}

TEST_CASE("train: a dataset that is set after initialize() is an error", "[runner]") {
  const Folder folder;
  TinyRunner runner(config_in(folder));
  runner.initialize();
  runner.datasets["late"] = Points{make_points(20, 1000), false};
  CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
        "[runner.train] expected the dataset of split 'late' to be set before initialize(), got it later");
}

}  // namespace
}  // namespace runner_test
