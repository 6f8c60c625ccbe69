// Schedules of a run: their log lines, metrics that drive them, chains, and resuming.
#include <danling/config/tree.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

/// Losses that stop falling twice: after the third and the fifth evaluation.
struct Stalling : TinyRunner {
  explicit Stalling(const TinyConfig& config) : TinyRunner(config) {
    evaluation_loss = losses_by_epoch({3, 2, 2, 1, 1, 0.5});
  }
};

TinyConfig on_plateau() {
  TinyConfig config;
  config.epochs = 5;
  config.sched.type = "reduce_on_plateau";
  config.sched.monitor = "val.loss";
  config.sched.factor = 0.5;
  config.sched.patience = 0;
  return config;
}

template <class Runner>
std::vector<std::string> logged(const TinyConfig& config, std::string_view begin = "schedule") {
  std::vector<std::string> lines;
  Runner runner(config);
  runner.logger().set_sink([&](dl::LogLevel, std::string_view text) {
    if (text.starts_with(begin)) {
      lines.emplace_back(text);
    }
  });
  runner.train();
  CHECK(runner.close());
  return lines;
}

template <class Runner = TinyRunner>
std::string refused(const TinyConfig& config) {
  Runner runner(config);
  return error_of<dl::ConfigError>([&] { runner.initialize(); });
}

TEST_CASE("schedule: a decay to 0 by percentile, which is 0 throughout as in DanLing, is a warning", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.sched.type = "cosine";
  config.sched.final_lr_ratio = 0.0;
  CHECK(logged<TinyRunner>(config, "sched never") ==
        std::vector<std::string>{"sched never reaches a thousandth of the learning rate 0.05; percentile scaling to 0 "
                                 "stays at 0: set scaling: numerical to decay to zero"});
}

TEST_CASE("schedule: one log line at the start has its first, highest and last rate", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.sched.type = "linear";
  config.sched.final_lr = 0.0;
  config.sched.min_lr = 0.0;
  config.sched.warmup_steps = config.sched.cooldown_steps = 0;
  CHECK(
      logged<TinyRunner>(config) ==
      std::vector<std::string>{"schedule: linear over 14 steps, learning rate 0.04643 at first, 0.04643 at most (step "
                               "1), 0 at last"});
  config.optim.param_groups = {{"0[.]", {.lr = 0.5}}};
  config.sched.interval = "eval";
  CHECK(logged<TinyRunner>(config) ==
        std::vector<std::string>{"schedule: linear over 2 epochs, learning rate 0.25 at first, 0.25 at most "
                                 "(epoch 1), 0 at last (the highest of 2 groups)"});
  config = on_plateau();
  config.workspace_root = folder.path().string();
  CHECK(logged<Stalling>(config) ==
        std::vector<std::string>{"schedule: reduce_on_plateau, learning rate 0.05 at first, then by val.loss"});
}

TEST_CASE("reduce_on_plateau: an epoch without a better metric reduces the rate, and the run resumes bit for bit",
          "[runner]") {
  TinyConfig config = on_plateau();
  SECTION("by epochs") {}
  SECTION("with warm-up") { config.sched.warmup_steps = 3; }
  SECTION("a metric of the split that selects the best") { config.sched.monitor.reset(); }
  const auto stops =
      GENERATE(std::vector<std::int64_t>{8, 9}, std::vector<std::int64_t>{27}, std::vector<std::int64_t>{0, 14, 1});
  const Folder whole;
  config.workspace_root = whole.path().string();
  Stalling uninterrupted(config);
  uninterrupted.train();
  CHECK(uninterrupted.optimizer->param_groups()[0].lr == 0.05 * 0.5 * 0.5);
  CHECK(uninterrupted.close());
  check_same(outcome_of(uninterrupted.workspace().dir()), run_stopped<Stalling>(config, stops));
}

TEST_CASE("reduce_on_plateau: by steps it steps at each evaluation", "[runner]") {
  struct ByStep : TinyRunner {
    explicit ByStep(const TinyConfig& config) : TinyRunner(config) {
      before_evaluation_step = [](TinyRunner& self, std::int64_t) {
        const auto step = self.state().train.global_step;
        self.evaluation_loss = [step](std::int64_t) { return step < 9 ? 10.0 - static_cast<double>(step) : 2.0; };
      };
    }
  };
  TinyConfig config = on_plateau();
  config.epochs.reset();
  config.steps = 20;
  config.evaluate_interval = 4;
  config.checkpoint.interval = 3;
  const Folder folder;
  config.workspace_root = folder.path().string();
  ByStep runner(config);
  runner.train();  // 6, 2, 2, 2 at 4, 8, 12, 16; the evaluation at the end steps too, and 20 is the last update
  CHECK(runner.optimizer->param_groups()[0].lr == 0.05 * 0.5 * 0.5 * 0.5);
  CHECK(runner.close());
  const auto whole = outcome_of(runner.workspace().dir());
  check_same(whole, run_stopped<ByStep>(config, {5, 6}));
  check_same(whole, run_stopped<ByStep>(config, {13}));
}

TEST_CASE("sched.monitor: one that no result can have is refused before training", "[runner]") {
  TinyConfig config = on_plateau();
  config.sched.monitor = "vall.loss";
  CHECK(refused(config) ==
        "[runner.build_scheduler] expected sched.monitor <split>.<metric> with one of the splits [train, val], got "
        "'vall.loss'; did you mean 'val'?");
  config.sched.monitor = "val.loss";
  config.epochs.reset();
  config.steps = 10;
  const Folder folder;
  config.workspace_root = folder.path().string();
  TinyRunner by_steps(config);
  CHECK(error_of<dl::ConfigError>([&] { by_steps.train(); }) ==
        "[runner.train] expected evaluate_interval with steps for sched.monitor 'val.loss', which is "
        "measured on split 'val', got none");
  config.sched.monitor = "train.loss";
  TinyRunner(config).initialize();
  config.sched = {};
  config.sched.type = "cosine";
  config.sched.monitor = "val.loss";
  CHECK(refused(config) ==
        "[runner.build_scheduler] expected no sched.monitor for a schedule that needs no metric, got 'val.loss'");
  config.sched = {};
  config.sched.type = "reduce_on_plateau";
  config.sched.interval = "updates";
  CHECK(refused(config) ==
        "[runner.build_scheduler] expected sched.interval epoch for a scheduler that needs a metric, got step");
}

TEST_CASE("sched.mode: min for a metric that is better when it is higher is a warning", "[runner]") {
  const Folder folder;
  TinyConfig config = on_plateau();
  config.workspace_root = folder.path().string();
  config.epochs = 1;
  config.sched.monitor = "val.acc";
  CHECK(logged<Stalling>(config, "sched.mode") ==
        std::vector<std::string>{"sched.mode is min, and 'acc' is better when it is higher; set sched.mode: max"});
  config.sched.mode = "max";
  CHECK(logged<Stalling>(config, "sched.mode").empty());
}

TEST_CASE("sched.chain: a chain of the config runs, resumes, and goes on with another number of epochs", "[runner]") {
  TinyConfig config;
  config.epochs = 3;
  dl::load_text(config,
                "sched: {min_lr: 0.0, chain: [{type: LinearLR, start_factor: 0.5, total_iters: 4, steps: 5}, "
                "{type: exponential, gamma: 0.5}]}",
                "text");
  const auto refusal = refused(config);
  CHECK(refusal == "[sched] expected options of sequential (chain, total_steps), got 'min_lr'");
  config.sched.min_lr.reset();
  check_same(run_through(config), run_stopped(config, {3, 9}));
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  config.epochs = 2;
  trained(config);
  config.epochs = 3;
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.optimizer->param_groups()[0].lr == Approx(0.05 * std::pow(0.5, 21 - 5)));
}

TEST_CASE("sched: options for models of another type than the common one are not inherited", "[runner]") {
  TinyConfig config;
  dl::load_text(config, "sched: {type: cosine, critic: {chain: [{type: constant}]}, actor: {type: step, step_size: 3}}",
                "text");
  CHECK(config.sched.for_name("critic").type_name() == "sequential");
  CHECK(config.sched.for_name("actor").type_name() == "step");
  CHECK(config.sched.for_name("other").type_name() == "cosine");
  config.sched.chain = {{{.type = "constant"}}};
  config.sched.type.reset();
  CHECK(config.sched.for_name("actor").chain.empty());
  CHECK(config.sched.for_name("other").type_name() == "sequential");
}

TEST_CASE("sched.interval: all names of DanLing, with one canonical form", "[runner]") {
  TinyConfig step, epoch;
  step.sched.interval = "step";
  epoch.sched.interval = "epoch";
  for (const auto* name : {"step", "steps", "update", "updates", "Steps"}) {
    TinyConfig config;
    dl::set_option(config, "sched.interval", name);
    CHECK(config.sched.interval_name() == "step");
    CHECK(dl::canonical_yaml(config) == dl::canonical_yaml(step));
  }
  for (const auto* name : {"epoch", "epochs", "eval", "evaluation", "validation", "Validation"}) {
    TinyConfig config;
    dl::set_option(config, "sched.interval", name);
    CHECK(config.sched.interval_name() == "epoch");
    CHECK(dl::canonical_yaml(config) == dl::canonical_yaml(epoch));
  }
}

}  // namespace
}  // namespace runner_test
