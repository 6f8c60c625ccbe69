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

TEST_CASE("train_step: without backward(loss) step() is an error", "[runner]") {
  const Folder folder;
  Careless<0> runner(two_epochs(folder));
  CHECK_THAT(
      error_of<dl::StateError>([&] { runner.train(); }),
      ContainsSubstring("[runner.step] expected a call of backward(loss) in train_step before step(), got none, and no "
                        "parameter has a gradient"));
}

/// Steps the schedule as a loop of PyTorch does.
class SteppingSchedule : public TinyRunner {
 public:
  SteppingSchedule(const TinyConfig& config, bool before) : TinyRunner(config), before_(before) {}

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    const auto prediction = model(batch.input);
    const auto loss = torch::nn::functional::cross_entropy(prediction, batch.target);
    backward(loss);
    if (before_) {
      scheduler->step();
    }
    step();
    if (!before_) {
      scheduler->step();
    }
    return {prediction, loss};
  }

 private:
  bool before_;
};

TEST_CASE("train_step: a call of scheduler->step() is an error, before step() and after it", "[runner]") {
  const bool before = GENERATE(true, false);
  const std::int64_t accum = GENERATE(1, 2);
  const Folder folder;
  TinyConfig config = two_epochs(folder);
  config.sched.type = "cosine";
  config.accum_steps = accum;
  SteppingSchedule runner(config, before);
  CHECK_THAT(error_of<dl::StateError>([&] { runner.train(); }),
             ContainsSubstring("[runner.train_step] expected only the runner to step the schedule, got a call of "
                               "scheduler->step() in train_step; remove it: step() advances the schedule after each "
                               "update"));
}

TEST_CASE("train_step: loss.backward() is one warning, and metrics without values are one for each split", "[runner]") {
  const Folder folder;
  CHECK(warnings_of<Careless<1>>(two_epochs(folder)) ==
        std::vector<std::string>{
            "runner.step: a train_step calls step() without backward(loss): its gradients are not weighted by the "
            "samples of the accumulation window, nor reduced over processes; call backward(loss) in place of "
            "loss.backward()",
            "the metrics of split 'train' received no values; call update_metrics in your train_step, or, without one, "
            "give the batches a target"});
}

TEST_CASE("train_step: a split whose targets are all ignored is a warning about its labels", "[runner]") {
  const Folder folder;
  const std::string split = GENERATE(as<std::string>{}, "train", "val");
  const bool measures = GENERATE(true, false);
  const auto warnings_with = [&](std::int64_t from) {
    TinyRunner runner(two_epochs(folder));
    if (!measures) {
      runner.metrics = nullptr;
    }
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
  const auto warnings = warnings_of<Ignoring>(two_epochs(folder));
  CHECK(std::count(warnings.begin(), warnings.end(),
                   "the metrics of split 'train' received no values; call update_metrics in your train_step, or, "
                   "without one, give the batches a target") == 1);
}

TEST_CASE("train: a metric with a name of the runner is an error before training", "[runner]") {
  const Folder folder;
  const auto named = [](const char* name) { return dl::StreamMetrics({{name, dl::metrics::multiclass_accuracy(3)}}); };
  const std::string expected =
      "expected metrics without a name of the runner (loss, lr, split, mode, epoch, global_step, iteration, "
      "telemetry), "
      "got ";
  for (const char* name : {"loss", "lr", "epoch", "split", "telemetry"}) {
    TinyRunner runner(two_epochs(folder));
    runner.metrics = named(name);
    CHECK(error_of<dl::ConfigError>([&] { runner.initialize(); }) ==
          dl::detail::concat("[runner.build_metrics] ", expected, "'", name, "' in `metrics`; rename it"));
  }
  SECTION("of an evaluation") {
    TinyRunner runner(two_epochs(folder));
    runner.evaluate_metrics = named("loss");
    CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) ==
          dl::detail::concat("[runner.build_metrics] ", expected, "'loss' in `evaluate_metrics`; rename it"));
    CHECK(runner.micro_batches == 0);
  }
  SECTION("set after initialize()") {
    TinyRunner runner(two_epochs(folder));
    runner.initialize();
    runner.train_metrics = named("loss");
    CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) ==
          dl::detail::concat("[runner.train] ", expected, "'loss' in `train_metrics`; rename it"));
    CHECK(runner.micro_batches == 0);
  }
  SECTION("a part of such a name is free") {
    TinyRunner runner(two_epochs(folder));
    runner.metrics = named("loss_rank");
    runner.train();
    CHECK(runner.state().train.epoch == 2);
  }
}

TEST_CASE("train_step: a loss that is not finite is a warning with split and step, or stops the run", "[runner]") {
  const Folder folder;
  TinyConfig config = two_epochs(folder);
  config.epochs = 1;
  config.log_interval = 2;
  CHECK(
      warnings_of<Careless<3>>(config) ==
      std::vector<std::string>{
          "the loss is not finite: nan in split 'train', epoch 1, by step 5; set on_nonfinite: stop to end such a run",
          "the metrics of split 'train' received no values; call update_metrics in your train_step, or, without one, "
          "give the batches a target"});
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
  TinyConfig config = two_epochs(folder);
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
  Replaced runner(two_epochs(folder));
  CHECK_THAT(error_of<dl::StateError>([&] { runner.train(); }),
             ContainsSubstring(
                 "[runner.step] expected gradients of the optimizer's parameters after backward(loss), got none: "
                 "the loss does not depend on them; was the model replaced after initialize(), or were gradients "
                 "zeroed?"));
}

TEST_CASE("train_step: a target of the prediction's size in another shape is one warning of a run", "[runner]") {
  const Folder folder;
  const auto warnings_with = [&](const at::Tensor& target, const auto& criterion) {
    std::vector<std::string> out;
    Regression runner(two_epochs(folder), target);
    runner.criterion = criterion;
    collect_warnings(runner, out);
    runner.train();
    return out;
  };
  const auto shapes = [](const at::Tensor& a, const at::Tensor& b) { return (a.reshape(-1) - b.reshape(-1)).mean(); };
  CHECK(warnings_with(torch::ones({16}), shapes) ==
        std::vector<std::string>{
            "criterion: the prediction has shape [8, 1] and the target [8]; a loss of elements broadcasts them and "
            "compares each with each; use target.unsqueeze(-1) or prediction.squeeze(-1)"});
  CHECK(warnings_with(torch::ones({16, 1}), shapes).empty());
  CHECK(warnings_with(torch::ones({16}, torch::kLong), shapes).empty());
}

TEST_CASE("TorchRunner: a warning about shapes is in the run's log, also from an evaluation", "[runner]") {
  const Folder logged;
  Regression first(two_epochs(logged), torch::ones({16}));
  first.train();
  const fs::path dir = first.workspace().dir();
  CHECK(first.close());
  CHECK(count(logs_of(dir), "criterion: the prediction has shape [8, 1] and the target [8]") == 1);

  const Folder folder;
  Regression runner(two_epochs(folder), torch::ones({16}));
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.evaluate({"val"});
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], StartsWith("criterion: the prediction has shape [8, 1] and the target [8]"));
  runner.train();
  CHECK(warnings.size() == 1);
}

TEST_CASE("train_step: a batch without a target, which the criterion needs, is an error", "[runner]") {
  struct Inputs {
    std::int64_t size() const { return 16; }
    dl::data::Sample get(std::int64_t) const { return {.input = torch::ones({2})}; }
  };
  const Folder folder;
  const std::string expected =
      "[runner.criterion] expected a target in the batch, got none; return one from the dataset, set a criterion that "
      "does not read it, or override train_step and evaluate_step; in train_step of split 'train', epoch 1, step 1, "
      "with input Float [8, 2] and target none";
  Regression runner(two_epochs(folder), torch::ones({16, 1}));
  runner.datasets["train"] = Inputs();
  SECTION("with a loss of elements") {}
  SECTION("with a loss of classes") { runner.criterion = torch::nn::CrossEntropyLoss(); }
  SECTION("with a loss of danling") { runner.criterion = dl::nn::losses().at("mse")({}); }
  CHECK(error_of<dl::DataError>([&] { runner.train(); }) == expected);
}

TEST_CASE("train_step: a criterion that reads no target needs none", "[runner]") {
  struct Inputs {
    std::int64_t size() const { return 16; }
    dl::data::Sample get(std::int64_t) const { return {.input = torch::ones({2})}; }
  };
  const Folder folder;
  Regression runner(two_epochs(folder), torch::ones({16, 1}));
  runner.datasets["train"] = Inputs();
  runner.criterion = [](const at::Tensor& prediction, const at::Tensor&) { return prediction.square().mean(); };
  runner.train();
  CHECK(runner.state().train.global_step == 4);
}

TEST_CASE("infer_on_batch: a batch without an input is an error", "[runner]") {
  const Folder folder;
  Regression runner(two_epochs(folder), torch::ones({16, 1}));
  CHECK_THAT(error_of<dl::DataError>([&] { runner.infer_on_batch(dl::Batch()); }),
             StartsWith("[runner.infer_step] expected an input in the batch, got none; set the batch's `input`"));
}

TEST_CASE("backward: a loss that depends on no trainable parameter is an error", "[runner]") {
  struct Frozen : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::StepOutput train_step(dl::Batch& batch) override {
      const auto prediction = model(batch.input).detach();
      const auto loss = torch::nn::functional::cross_entropy(prediction, batch.target);
      backward(loss);
      step();
      return {prediction, loss};
    }
  };
  const Folder folder;
  Frozen runner(two_epochs(folder));
  CHECK_THAT(error_of<dl::StateError>([&] { runner.train(); }),
             StartsWith("[runner.backward] expected a loss that depends on a trainable parameter, got one without a "
                        "gradient: all parameters are frozen, the prediction was detached or computed without "
                        "gradients, or the loss was built from .item(); in train_step of split 'train', epoch 1"));
}

TEST_CASE("TorchRunner: only a runner that has trained warns when it is destroyed without close()", "[runner]") {
  struct Open : dl::TorchRunner {
    explicit Open(const TinyConfig& config) : TorchRunner(config) {
      model = make_tiny_net(config);
      criterion = torch::nn::CrossEntropyLoss();
      datasets["train"] = Points{make_points(config.records, 0), true};
      datasets["val"] = Points{make_points(20, 1000), false};
    }
  };
  std::vector<std::string> warnings;
  const auto destroy_after = [&](const std::function<void(Open&)>& work) {
    const Folder folder;
    warnings.clear();
    Open runner(two_epochs(folder));
    collect_warnings(runner, warnings);
    work(runner);
  };
  destroy_after([](Open& runner) { runner.infer("val"); });
  CHECK(warnings.empty());
  CHECK_THROWS_AS(destroy_after([](Open& runner) {
                    runner.train();
                    throw std::runtime_error("later");
                  }),
                  std::runtime_error);
  CHECK(warnings.empty());
  destroy_after([](Open& runner) { runner.train(); });
  CHECK(warnings == std::vector<std::string>{
                        "a runner was destroyed without close(): its last checkpoints and logs may be missing"});
}

TEST_CASE("train: a dataset that is set after initialize() is an error", "[runner]") {
  const Folder folder;
  TinyRunner runner(two_epochs(folder));
  runner.initialize();
  runner.datasets["late"] = Points{make_points(20, 1000), false};
  CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
        "[runner.train] expected the dataset of split 'late' to be set before initialize(), got it later");
}

}  // namespace
}  // namespace runner_test
