// Averages where it is hard: stops in the evaluation that SWALR begins after, parameters that join late, tests with
// other weights, runs without evaluations, runs that are extended; and averages that a run never makes.
#include "fixture.hpp"
#include "models.hpp"

namespace runner_test {
namespace {

using dl::State;

Outcome resumed_in_evaluation(TinyConfig config, std::int64_t batch) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  {
    TinyRunner runner(config);
    train_until_evaluation(runner, batch);
  }
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.close());
  return outcome_of(runner.workspace().dir());
}

TEST_CASE("swa: SWALR begins after the epoch whose evaluation a stop interrupted, as in an uninterrupted run",
          "[runner]") {
  TinyConfig config;
  config.epochs = 4;
  config.sched.type = "cosine";
  config.ema.enabled = true;
  config.swa.enabled = true;
  config.swa.start = 1;
  config.swa.lr = 0.01;
  config.swa.anneal = 2;
  const Outcome whole = run_through(config);
  const std::int64_t batch = GENERATE(1, 3, 5, 8);  // three in each epoch
  CAPTURE(batch);
  check_same(resumed_in_evaluation(config, batch), whole);
}

/// The last layer is frozen until step 7.
class LateLayerRunner : public TinyRunner {
 public:
  explicit LateLayerRunner(const TinyConfig& config) : TinyRunner(config) { set_trains(false); }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    set_trains(state().train.global_step >= 7);
    return TinyRunner::train_step(batch);
  }

 private:
  void set_trains(bool on) {
    for (auto& parameter : model.as<torch::nn::Sequential>()->ptr<torch::nn::LinearImpl>(3)->parameters()) {
      parameter.requires_grad_(on);
    }
  }
};

TinyConfig late_config() {
  TinyConfig config;
  config.ema.enabled = true;
  config.swa.enabled = true;
  config.swa.start = 1;
  return config;
}

TEST_CASE("ema and swa: a parameter that joined right before a stop is averaged in the resumed run", "[runner]") {
  TinyConfig config = late_config();
  config.epochs = 4;
  const Outcome whole = [&] {
    const Folder folder;
    config.workspace_root = folder.path().string();
    LateLayerRunner runner(config);
    runner.train();
    CHECK(runner.close());
    return outcome_of(runner.workspace().dir());
  }();
  const auto with_stop = [&](const std::function<void(LateLayerRunner&)>& stop) {
    const Folder folder;
    config.workspace_root = folder.path().string();
    config.auto_resume = true;
    {
      LateLayerRunner runner(config);
      stop(runner);
    }
    LateLayerRunner runner(config);
    runner.train();
    CHECK(runner.close());
    check_same(outcome_of(runner.workspace().dir()), whole);
  };
  SECTION("ema: after the update that trained it first") {
    with_stop([](LateLayerRunner& runner) { train_until(runner, 7); });
  }
  SECTION("swa: in the evaluation after it joined") {
    with_stop([](LateLayerRunner& runner) { train_until_evaluation(runner, 4); });
  }
}

TEST_CASE("ema and swa: a parameter that joined after a checkpoint has no average after a roll-back to it",
          "[runner]") {
  TinyConfig config = late_config();
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.steps = 24;
  config.evaluate_interval = 6;
  config.checkpoint.interval = 6;
  config.swa.interval = 2;
  LateLayerRunner runner(config);
  runner.train();
  const State first = dl::clone(runner.state_dict());
  runner.load_checkpoint(runner.workspace().checkpoint_dir() / "ckpt-s000000000006.pth");
  const State back = runner.state_dict();
  CHECK(back.at("averages").at("ema").at("left_out").items().size() == 2);
  CHECK(back.at("averages").at("swa").at("left_out").items().size() == 2);
  runner.train();
  const State again = runner.state_dict();
  for (const char* part : {"model", "ema", "swa", "averages", "optimizer"}) {
    CAPTURE(part);
    CHECK(dl::first_difference(again.at(part), first.at(part)) == "");
  }
}

TEST_CASE("ema and swa: test_with best of several models leaves their averages and counts", "[runner]") {
  struct Tested : GanRunner {
    explicit Tested(const TinyConfig& config) : GanRunner(config) {
      datasets["val"] = Points{make_points(20, 1000), false};
      datasets["test"] = Points{make_points(20, 2000), false};
    }
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      const double loss = state().train.epoch == 0 ? 1 : 2;
      return {models["discriminator"](batch.input), torch::full({}, loss)};
    }
  };
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.ema.enabled = true;
  config.ema.start = 3;
  config.swa.enabled = true;
  config.swa.start = 1;
  config.test_with = "best";
  config.test_splits = std::vector<std::string>{"test"};
  config.evaluate_splits = std::vector<std::string>{"val"};
  Tested runner(config);
  runner.train();
  const State before = dl::clone(runner.state_dict());
  CHECK(before.at("models").at("generator").at("averages").at("ema").at("n_averaged").integer() == 21 - 3);
  CHECK(before.at("models").at("generator").at("averages").at("swa").at("n_averaged").integer() == 2);
  CHECK(runner.evaluated_average() == "swa");
  runner.test();
  CHECK(runner.evaluated_average() == "swa");
  CHECK(dl::first_difference(runner.state_dict().at("models"), before.at("models")) == "");
}

// ---- a run without evaluations --------------------------------------------------------------------------------------

TEST_CASE("swa: without a split to evaluate, the export and the test have the average with its statistics",
          "[runner]") {
  struct Unevaluated : dl::TorchRunner {
    explicit Unevaluated(const TinyConfig& config) : TorchRunner(config) {
      model = torch::nn::Sequential(torch::nn::Linear(4, 6), torch::nn::BatchNorm1d(6), torch::nn::Linear(6, 3));
      criterion = torch::nn::CrossEntropyLoss();
      datasets["train"] = Points{make_points(config.records, 0), true};
      datasets["test"] = Points{make_points(20, 1000), false};
    }
    ~Unevaluated() override { close(); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.records = 48;  // equal batches: the mean of their means is that of all
  config.test_splits = std::vector<std::string>{"test"};
  config.evaluate_splits = std::vector<std::string>{};
  config.ema.enabled = true;
  config.swa.enabled = true;
  config.swa.start = 0.5;
  if (GENERATE(false, true)) {
    config.steps = 24;
  } else {
    config.epochs = 4;
  }
  Unevaluated runner(config);
  runner.train();
  CHECK_THAT(runner.exported_weights(), EndsWith("(last, swa)"));
  const State state = dl::clone(runner.state_dict());
  const State exported = dl::load_weights(runner.workspace().checkpoint_dir() / "model.pth");
  const State& average = exported.at("ema");
  CHECK(dl::first_difference(average, state.at("swa")) == "");
  const at::Tensor input = make_points(48, 0).input;
  const at::Tensor hidden = at::linear(input, average.at("0.weight").tensor(), average.at("0.bias").tensor());
  CHECK(torch::allclose(average.at("1.running_mean").tensor(), hidden.mean(0), 1e-4, 1e-5));
  CHECK_FALSE(torch::allclose(exported.at("model").at("1.running_mean").tensor(), hidden.mean(0), 1e-4, 1e-5));

  const double loss = *runner.test().number("test.loss");
  CHECK(runner.tested_weights() == runner.exported_weights());
  auto net = torch::nn::Sequential(torch::nn::Linear(4, 6), torch::nn::BatchNorm1d(6), torch::nn::Linear(6, 3));
  dl::ModelHandle handle = net;
  handle.load_state_dict(average);
  handle.train(false);
  const auto points = make_points(20, 1000);
  const at::Tensor want = torch::nn::functional::cross_entropy(handle(points.input), points.target);
  CHECK(loss == Approx(want.item<double>()).epsilon(1e-5));
}

// ---- a run that is extended -----------------------------------------------------------------------------------------

/// The rate of each epoch of seven updates.
std::vector<double> rates_of_run(TinyRunner& runner) {
  std::vector<double> out;
  runner.before_step = [&out](TinyRunner& self, std::int64_t done) {
    if (done % 7 == 0) out.push_back(self.optimizer->param_groups()[0].lr);
  };
  runner.train();
  return out;
}

TEST_CASE("swa: a run that is extended trains at the rates without SWALR until its new start", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  const auto [sched, interval] = GENERATE(table<std::string, std::string>({{"", ""},
                                                                           {"cosine", "epoch"},
                                                                           {"cosine", "step"},
                                                                           {"step", "epoch"},
                                                                           {"step", "step"},
                                                                           {"reduce_on_plateau", "epoch"}}));
  CAPTURE(sched, interval);
  if (!sched.empty()) {
    config.sched.type = sched;
    config.sched.interval = interval;
  }
  if (sched == "step") config.sched.step_size = 3;
  if (sched == "reduce_on_plateau") config.sched.patience = 100;
  config.swa.enabled = true;
  config.swa.start = 0.5;
  config.swa.lr = 0.5;
  config.swa.anneal = 1;
  config.epochs = 6;
  {
    TinyRunner runner(config);
    CHECK(rates_of_run(runner).back() == Approx(0.5).epsilon(1e-9));
  }
  config.epochs = GENERATE(12, 16);  // the new start is the old end, or behind it
  config.auto_resume = true;
  TinyRunner runner(config);
  const auto rates = rates_of_run(runner);
  const Folder other;
  config.workspace_root = other.path().string();
  config.swa = {};
  TinyRunner plain(config);
  const auto want = rates_of_run(plain);
  const auto start = static_cast<std::size_t>(*config.epochs / 2);
  REQUIRE(rates.size() == static_cast<std::size_t>(*config.epochs) - 6);
  for (std::size_t epoch = 6; epoch <= start; ++epoch) {
    CAPTURE(epoch);
    CHECK(rates[epoch - 6] == Approx(want[epoch]).epsilon(1e-9));
  }
  CHECK(rates.back() == Approx(0.5).epsilon(1e-9));
  CHECK(runner.state_dict().at("averages").at("swa").at("n_averaged").integer() == *config.epochs / 2);
}

// ---- averages that no run makes -------------------------------------------------------------------------------------

std::vector<std::string> average_warnings(const TinyConfig& config) {
  TinyRunner runner(config);
  std::vector<std::string> out;
  runner.initialize();
  collect_warnings(runner, out);
  runner.evaluation_loss = [](std::int64_t) { return 1.0; };
  runner.train();
  return out;
}

TEST_CASE("ema and swa: an average that begins behind the end of the run is warned of", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  SECTION("in epochs") {
    config.swa.enabled = true;
    config.swa.start = 4;
    CHECK(average_warnings(config) ==
          std::vector<std::string>{"runner.averages: expected an average of swa within the run, got none: with "
                                   "swa.start 4 and swa.interval 1 the first is at epoch 5, and the run has 4; lower "
                                   "them"});
  }
  SECTION("in updates") {
    config.ema.enabled = true;
    config.ema.interval = 29;  // of 28 updates
    CHECK(average_warnings(config) ==
          std::vector<std::string>{"runner.averages: expected an average of ema within the run, got none: with "
                                   "ema.start 0 and ema.interval 29 the first is at update 29, and the run has 28; "
                                   "lower them"});
  }
  SECTION("not of one that begins at the end") {
    config.ema.enabled = true;
    config.ema.interval = 28;
    config.swa.enabled = true;
    config.swa.start = 3;
    CHECK(average_warnings(config).empty());
  }
  SECTION("a run that ends before it") {
    config.swa.enabled = true;
    config.swa.start = 3;
    config.patience = 1;
    CHECK(average_warnings(config) ==
          std::vector<std::string>{"runner.averages: the run has ended before the first average of swa, at epoch 4: "
                                   "its results and exports do not use it"});
  }
}

TEST_CASE("swa: options of SWALR without its rate are errors", "[runner]") {
  TinyConfig config;
  config.swa.enabled = true;
  config.swa.anneal = 10;
  CHECK(error_of<dl::ConfigError>([&] { config.base_validate(); }) ==
        "[config.validate] expected 'swa.lr' with 'swa.anneal', got none");
  config.swa.anneal.reset();
  config.swa.anneal_strategy = "linear";
  CHECK(error_of<dl::ConfigError>([&] { config.base_validate(); }) ==
        "[config.validate] expected 'swa.lr' with 'swa.anneal_strategy', got none");
  config.swa.models["critic"].lr = 0.1;  // reads the common strategy
  config.base_validate();
  config.swa.models["actor"].anneal = 3;
  CHECK(error_of<dl::ConfigError>([&] { config.base_validate(); }) ==
        "[config.validate] expected 'swa.actor.lr' with 'swa.actor.anneal', got none");
  config.swa.lr = 0.1;
  config.base_validate();
}

}  // namespace
}  // namespace runner_test
