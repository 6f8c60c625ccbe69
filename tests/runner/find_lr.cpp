// find_lr: its losses and suggestions, and that it changes nothing.
#include "fixture.hpp"
#include "models.hpp"
#include "printed.hpp"
#include "rank_runner.hpp"

namespace runner_test {
namespace {

using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

/// Minimises curvature / 2 * x^2 by gradient descent from x = 1: its loss before update t is
/// curvature / 2 * prod_{i < t} (1 - lr_i * curvature)^2, which falls as long as the rate is below 2 / curvature.
class Parabola : public dl::TorchRunner {
 public:
  Parabola(const TinyConfig& config, double curvature) : TorchRunner(config), curvature_(curvature) {
    auto net = torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false));
    const at::NoGradGuard no_grad;
    net->weight.fill_(1.0);
    net->to(torch::kDouble);
    model = net;
    datasets["train"] = Points{make_points(40, 0), true};
  }
  ~Parabola() override { close(); }

 protected:
  dl::StepOutput train_step(dl::Batch&) override {
    const auto loss = model.as<torch::nn::Linear>()->weight.square().sum() * (curvature_ / 2);
    backward(loss);
    step();
    return {{}, loss};
  }

 private:
  double curvature_;
};

TinyConfig parabola_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 1;
  config.optim.type = "sgd";
  return config;
}

TEST_CASE("find_lr: on a parabola the losses are those of gradient descent, which diverges beyond 2 / curvature",
          "[runner]") {
  for (const double curvature : {0.5, 4.0, 300.0}) {
    const Folder folder;
    TinyConfig config = parabola_config(folder);
    SECTION("by epochs") {}
    SECTION("by steps") {
      config.epochs.reset();
      config.steps = 3;
    }
    SECTION("with accumulation") { config.accum_steps = 3; }
    Parabola runner(config, curvature);
    const dl::LearningRateReport report = runner.find_lr({.min = 1e-5, .max = 100, .steps = 140});
    REQUIRE(report.points.size() > 50);
    double x = 1.0;
    double average = 0.0;
    for (std::size_t i = 0; i < report.points.size(); ++i) {
      const auto& point = report.points[i];
      const double lr = 1e-5 * std::pow(1e7, static_cast<double>(i) / 139);
      const double loss = curvature / 2 * x * x;
      average = 0.98 * average + 0.02 * loss;
      CHECK_THAT(point.lr, WithinRel(lr, 1e-9));
      CHECK_THAT(point.loss, WithinRel(loss, 1e-6));
      CHECK_THAT(point.smoothed, WithinRel(average / (1 - std::pow(0.98, static_cast<double>(i) + 1)), 1e-6));
      x *= 1 - lr * curvature;
    }
    CHECK(report.diverged);
    CHECK(report.points.back().lr > 2 / curvature);
    REQUIRE(report.suggestion());
    CHECK(*report.suggestion() < 2 / curvature);
    CHECK(*report.suggestion() > 0.02 / curvature);
    REQUIRE(report.minimum);
    CHECK(*report.minimum < 2 / curvature);
  }
}

dl::LearningRateReport report_of(const std::function<double(double)>& loss_of_log_rate) {
  dl::LearningRateReport report;
  for (int i = 0; i <= 80; ++i) {
    const double power = -7 + 0.1 * i;
    const double loss = loss_of_log_rate(power);
    report.points.push_back({std::pow(10, power), loss, loss});
  }
  report.find_suggestions();
  return report;
}

constexpr auto no_suggestion =
    "\nno suggestion: the loss does not fall by more than its noise; try more find_lr.steps, larger batches, or "
    "another find_lr.min or find_lr.max";

TEST_CASE("find_lr: suggests where the loss falls fastest, and a tenth of the rate of its minimum", "[runner]") {
  const auto fall = report_of([](double power) { return 1 / (1 + std::exp(4 * (power + 2.5))); });
  REQUIRE(fall.steepest);
  CHECK_THAT(std::log10(*fall.steepest), WithinAbs(-2.5, 1e-9));
  const auto bowl = report_of([](double power) { return (power + 1.2) * (power + 1.2); });
  REQUIRE(bowl.minimum);
  CHECK_THAT(std::log10(*bowl.minimum), WithinAbs(-2.2, 1e-9));
  REQUIRE(bowl.steepest);
  // Behind a tenth of the fall from 17.64, the median of the first quarter of the way: where it is below 15.88.
  CHECK_THAT(std::log10(*bowl.steepest), WithinAbs(-5.2, 1e-9));
  const auto rise = report_of([](double power) { return power; });
  CHECK_FALSE(rise.suggestion());
  CHECK_FALSE(rise.minimum);
  CHECK_THAT(rise.text(), EndsWith(no_suggestion));
  dl::LearningRateReport broken;
  broken.points = {{1e-7, 2.0, 2.0}, {2e-7, 1.0, 1.5}};
  broken.diverged = true;
  broken.find_suggestions();
  CHECK_FALSE(broken.suggestion());
  CHECK_THAT(broken.text(), EndsWith("\nno suggestion: expected more than 10 updates, got 2; the loss after them was "
                                     "not finite, or far above the others"));
}

/// Losses of 100 rates from 1e-7 to 10 with noise from -0.5 to 0.5 times `noise`, smoothed as by the finder.
dl::LearningRateReport noisy_report_of(double noise, double phase, const std::function<double(double)>& loss_of_power) {
  dl::LearningRateReport report;
  double average = 0.0;
  for (int i = 0; i < 100; ++i) {
    const double power = -7 + 8.0 * i / 99;
    double whole = 0.0;  // evenly spread and without order: the digits of multiples of pi
    const double loss = loss_of_power(power) + noise * (std::modf(phase + i * i * M_PI, &whole) - 0.5);
    average = 0.98 * average + 0.02 * loss;
    report.points.push_back({std::pow(10, power), loss, average / (1 - std::pow(0.98, i + 1))});
  }
  report.find_suggestions();
  return report;
}

TEST_CASE("find_lr: without a fall beyond the noise it suggests nothing", "[runner]") {
  for (int i = 0; i < 50; ++i) {
    const double phase = 0.02 * i;
    CAPTURE(phase);
    const auto flat = noisy_report_of(1.0, phase, [](double) { return 2.0; });
    CHECK_FALSE(flat.steepest);
    CHECK_FALSE(flat.minimum);
    CHECK_THAT(flat.text(), EndsWith(no_suggestion));
    const auto diverging =
        noisy_report_of(1.0, phase, [](double power) { return 2.0 + std::exp(4 * std::max(power + 1, 0.0)) - 1; });
    CHECK_FALSE(diverging.steepest);
  }
}

TEST_CASE("find_lr: behind a noisy plateau it suggests a rate of the fall, not of the noise or of what follows a spike",
          "[runner]") {
  // From 2 at 1e-3 to 1 at 0.1; then a spike, behind which the losses are lower than ever.
  const auto loss = [](double power) {
    const double fallen = 2 - std::clamp((power + 3) / 2, 0.0, 1.0);
    return power < -0.95 ? fallen : power < -0.6 ? 20.0 : 0.2;
  };
  for (int i = 0; i < 50; ++i) {
    const double phase = 0.02 * i;
    CAPTURE(phase);
    const auto report = noisy_report_of(0.5, phase, loss);
    REQUIRE(report.steepest);
    CHECK(*report.steepest > 1e-3);
    CHECK(*report.steepest < std::pow(10, -0.95));
    REQUIRE(report.minimum);
    CHECK(*report.minimum > 1e-3);
    CHECK(*report.minimum < std::pow(10, -1.95));
  }
}

/// With everything that a step changes: dropout, moments, a schedule, metrics, a tracked object, a shuffled loader.
class CountingRunner : public TinyRunner {
 public:
  struct Counter {
    std::int64_t count = 0;
    dl::State state_dict() const { return count; }
    void load_state_dict(const dl::State& state) { count = state.integer(); }
  };
  explicit CountingRunner(const TinyConfig& config) : TinyRunner(config) { register_state("counter", counter); }
  Counter counter;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    ++counter.count;
    meters["counted"].update(static_cast<double>(counter.count));
    request_save();
    return TinyRunner::train_step(batch);
  }
};

TinyConfig busy_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 3;
  config.accum_steps = 2;
  config.max_grad_norm = 0.5;
  config.dataloader.shuffle = true;
  config.sched.type = "linear";
  config.sched.warmup_steps = 2;
  config.checkpoint.exclude_from_loading = {"optimizer", "tracked"};
  config.log_interval = 1;
  return config;
}

Outcome trained_after(const std::function<void(CountingRunner&)>& before, TinyConfig config) {
  CountingRunner runner(config);
  before(runner);
  runner.train();
  CHECK(runner.close());
  return outcome_of(runner.workspace().dir());
}

TEST_CASE("find_lr: changes no bit of the run that follows, and writes nothing", "[runner]") {
  const Folder a;
  const Folder b;
  TinyConfig config = busy_config(a);
  SECTION("by epochs") {}
  SECTION("by steps") {
    config.epochs.reset();
    config.steps = 12;
  }
  SECTION("with a loss scale, policies, averages and adapters") {
    config.precision = "fp16";
    config.scaler.growth_interval = 3;
    config.log_grad_norm = true;
    config.on_nonfinite = "skip";
    config.spike.action = "skip";
    config.ema.enabled = true;
    config.swa.enabled = true;
    config.swa.start = 1;
    config.lora.target_modules = std::vector<std::string>{"^0$"};
    config.lora.r = 2;
    config.sched = dl::SchedConfig();
    config.sched.type = "reduce_on_plateau";
    config.sched.interval = "epoch";
    config.sched.patience = 0;
  }
  const Outcome plain = trained_after([](CountingRunner&) {}, config);
  config.workspace_root = b.path().string();
  const Outcome after = trained_after(
      [&](CountingRunner& runner) {
        runner.initialize();
        const dl::State before = dl::clone(runner.state_dict());
        const auto report = runner.find_lr({.steps = 30});
        CHECK(report.points.size() > 3);
        CHECK(dl::first_difference(before, runner.state_dict()) == "");
        CHECK(runner.counter.count == 0);
        CHECK(runner.state().train.global_step == 0);
        CHECK(fs::is_empty(b.path()));
      },
      config);
  check_same(plain, after);
}

TEST_CASE("find_lr: in a resumed run it leaves the position in the epoch as it is", "[runner]") {
  TinyConfig config;
  const auto finished = [&](bool finds) {
    const Folder folder;
    TinyConfig own = busy_config(folder);
    own.checkpoint.exclude_from_loading.clear();
    own.auto_resume = true;
    {
      CountingRunner runner(own);
      train_until(runner, 11);
    }
    return trained_after(
        [&](CountingRunner& runner) {
          if (finds) {
            CHECK(runner.find_lr({.steps = 20}).points.size() > 3);
          }
        },
        own);
  };
  check_same(finished(false), finished(true));
}

TEST_CASE("find_lr: after training it leaves results and metrics as they are", "[runner]") {
  const Folder folder;
  TinyConfig config = busy_config(folder);
  CountingRunner runner(config);
  runner.train();
  const dl::State before = dl::clone(runner.state_dict());
  const auto numbers = runner.metrics->average().text();
  const auto meters = runner.meters.average().text();
  runner.find_lr({.steps = 20});
  CHECK(dl::first_difference(before, runner.state_dict()) == "");
  CHECK(runner.metrics->average().text() == numbers);
  CHECK(runner.meters.average().text() == meters);
}

TEST_CASE("find_lr: an exception of a step leaves the runner as before", "[runner]") {
  const Folder folder;
  CountingRunner runner(busy_config(folder));
  runner.initialize();
  const dl::State before = dl::clone(runner.state_dict());
  throw_before(runner, 5);
  CHECK_THROWS_WITH(runner.find_lr({.steps = 20}), StartsWith("a bad batch; in train_step of split 'train'"));
  CHECK(dl::first_difference(before, runner.state_dict()) == "");
  runner.before_step = nullptr;
  runner.micro_batches = 0;
  runner.train();
  CHECK(runner.state().train.epoch == 3);
}

TEST_CASE("find_lr: a stop ends it with the runner as before, and saves nothing", "[runner]") {
  const Folder folder;
  CountingRunner runner(busy_config(folder));
  runner.initialize();
  const dl::State before = dl::clone(runner.state_dict());
  stop_before(runner, 5);
  CHECK(error_of<dl::Stopped>([&] { runner.find_lr({.steps = 20}); }) ==
        "[runner.stop] stopped by SIGTERM in epoch 1, at step 0");
  CHECK(dl::first_difference(before, runner.state_dict()) == "");
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("find_lr: groups keep the proportion of their rates", "[runner]") {
  struct Rates : TinyRunner {
    explicit Rates(const TinyConfig& config) : TinyRunner(config) {
      before_step = [this](TinyRunner&, std::int64_t) {
        for (const auto& group : optimizer->param_groups()) {
          seen.push_back(group.lr);
        }
      };
    }
    std::vector<double> seen;
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.optim.param_groups.emplace_back().pattern = "^0[.]";
  config.optim.param_groups.back().lr_multiplier = 0.25;
  Rates runner(config);
  runner.find_lr({.min = 1e-4, .max = 1e-2, .steps = 3});
  REQUIRE(runner.seen.size() == 6);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK_THAT(runner.seen[2 * i], WithinRel(1e-4 * std::pow(10.0, static_cast<double>(i)), 1e-12));
    const double other = runner.optimizer->param_groups()[1].lr / runner.optimizer->param_groups()[0].lr;
    CHECK_THAT(runner.seen[2 * i + 1], WithinRel(runner.seen[2 * i] * other, 1e-12));
  }
}

TEST_CASE("find_lr: of several models the rate of one grows, and its losses are those of its backward passes",
          "[runner]") {
  struct WatchedRates : GanRunner {
    using GanRunner::GanRunner;
    dl::StepOutput train_step(dl::Batch& batch) override {
      rates.emplace_back(optimizers["generator"]->param_groups().front().lr,
                         optimizers["discriminator"]->param_groups().front().lr);
      const auto fake = models["generator"](batch.input.roll(1, 0));
      losses.push_back((score(models["discriminator"](batch.input), 1.0) + score(models["discriminator"](fake), 0.0))
                           .item<double>());
      return GanRunner::train_step(batch);
    }
    std::vector<std::pair<double, double>> rates;
    std::vector<double> losses;
  };
  const Folder folder;
  WatchedRates runner(gan_config(folder));
  runner.initialize();
  const dl::State before = dl::clone(runner.state_dict());
  const auto report = runner.find_lr({.min = 1e-4, .max = 1e-1, .steps = 4, .model = "discriminator"});
  REQUIRE(report.points.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(runner.rates[i].first == 0.05);
    CHECK_THAT(runner.rates[i].second, WithinRel(report.points[i].lr, 1e-12));
    CHECK_THAT(report.points[i].loss, WithinRel(runner.losses[i], 1e-5));
  }
  CHECK(dl::first_difference(before, runner.state_dict()) == "");
  CHECK(error_of<dl::ConfigError>([&] { runner.find_lr({.model = "discriminater"}); }) ==
        "[runner.find_lr] expected a model that is trained, one of [discriminator, generator], got 'discriminater'; "
        "did you mean 'discriminator'?");
  CHECK(error_of<dl::ConfigError>([&] { runner.find_lr(dl::FindLrOptions{}); }) ==
        "[runner.find_lr] expected find_lr.model with one of the models [discriminator, generator], got none");
}

TEST_CASE("find_lr: ranks average their losses and suggest the same rate", "[runner]") {
  TinyConfig config;
  config.epochs = 1;
  config.dataloader.batch_size = 4;
  const auto texts = danling_test::run_ranks(2, [&](const dl::Group& group) {
    const Folder folder;
    TinyConfig own = config;
    own.workspace_root = folder.path().string();
    RankRunner<> runner(own, group);
    std::vector<double> mine;
    const auto report = runner.find_lr({.steps = 12, .divergence = 1e9});
    std::string out = dl::detail::concat(report.points.size());
    for (const auto& point : report.points) {
      out += dl::detail::concat(" ", point.loss);
    }
    return out;
  });
  CHECK(texts[0] == texts[1]);
  CHECK_THAT(texts[0], StartsWith("12 "));
}

TEST_CASE("find_lr: wrong options are one clear line", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  CHECK(error_of<dl::ConfigError>([&] { runner.find_lr({.min = 1, .max = 0.1}); }) ==
        "[runner.find_lr] expected find_lr.min above 0 and below find_lr.max, got 1.0 and 0.1");
  CHECK(error_of<dl::ConfigError>([&] { runner.find_lr({.steps = 1}); }) ==
        "[runner.find_lr] expected find_lr.steps of at least 2, got 1");
  CHECK(error_of<dl::ConfigError>([&] { runner.find_lr({.svg = "/nowhere/at/all.svg"}); }) ==
        "[runner.find_lr] expected a file in an existing directory for find_lr.svg, got '/nowhere/at/all.svg'");
  std::string inside;
  runner.before_step = [&](TinyRunner& self, std::int64_t) {
    inside = error_of<dl::StateError>([&] { self.find_lr(); });
  };
  runner.train();
  CHECK_THAT(inside, StartsWith("[runner.find_lr] expected"));
}

TEST_CASE("find_lr: --find_lr prints the picture, writes the SVG file and no run, and returns 0", "[runner]") {
  const Folder folder;
  const std::string picture = (folder.path() / "rates.svg").string();
  const std::string root = (folder.path() / "runs").string();
  std::vector<std::string> words = {"program",          "--find_lr", "--find_lr.steps", "25", "--find_lr.svg", picture,
                                    "--workspace_root", root,        "--epochs",        "1"};
  std::vector<char*> arguments;
  for (auto& word : words) {
    arguments.push_back(word.data());
  }
  int code = -1;
  const std::string text =
      printed_by([&] { code = dl::run<TinyRunner, TinyConfig>(static_cast<int>(arguments.size()), arguments.data()); });
  CHECK(code == dl::exit_success);
  CHECK_THAT(text, StartsWith("learning rate finder\nloss   . of each update   * smoothed\n"));
  CHECK_THAT(text, ContainsSubstring(" updates from 1e-07 to "));
  CHECK_THAT(read_file(picture), StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK_FALSE(fs::exists(root));
}

}  // namespace
}  // namespace runner_test
