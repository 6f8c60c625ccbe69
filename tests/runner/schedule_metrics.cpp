// The metrics that drive schedules: those of loss terms, those that no result has, and those of a program's own loop.
#include "hosted.hpp"
#include "terms_runner.hpp"

namespace runner_test {
namespace {

using Texts = std::vector<std::string>;

dl::SchedConfig plateau(std::optional<std::string> monitor = {}) {
  dl::SchedConfig sched;
  sched.type = "reduce_on_plateau";
  sched.monitor = std::move(monitor);
  sched.threshold = 0.0;
  return sched;
}

struct HostedTerms : HostedRunner {
  explicit HostedTerms(const TinyConfig& config) : HostedRunner(config) { criterion = two_terms(); }
  ~HostedTerms() override { close(); }
};

TEST_CASE("sched.monitor: the loss of a term, of the split that selects the best or of another", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  config.optim.lr = 0.01;
  std::string key = "val.losses.ce.1";
  SECTION("of the score's split") { config.sched = plateau("losses.ce.1"); }
  SECTION("by its full name") { config.sched = plateau("val.losses.ce.1"); }
  SECTION("of the training split") { config.sched = plateau(key = "train.losses.ce.1"); }
  SECTION("the score") {
    config.sched = plateau();
    config.score_name = "losses.ce.1";
  }
  TermsRunner runner(config);
  Texts warnings;
  collect_warnings(runner, warnings);
  double best = std::numeric_limits<double>::infinity();
  for (const auto& row : runner.train().rows()) {
    best = std::min(best, *row.result.number(key));
  }
  CHECK(warnings == Texts{});
  CHECK(runner.scheduler->last_epoch() == 4);
  CHECK(runner.scheduler->state_dict().at("best").number() == best);
}

TEST_CASE("sched.monitor: a metric that no result has is a warning, and what was trained is kept", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.sched = plateau("val.los");
  TinyRunner runner(config);
  Texts warnings;
  collect_warnings(runner, warnings);
  runner.train();
  CHECK(
      warnings ==
      Texts{
          "sched.monitor: expected one of [loss, acc], or a meter that the step updates, got 'los'; did you mean "
          "'loss'?",
          "sched.monitor: expected the metric 'val.los', got [train.loss, train.lr, train.acc, val.loss, val.acc]; the "
          "learning rate does not change; did you mean 'val.loss'?"});
  CHECK(runner.state().train.epoch == 2);
  CHECK(runner.scheduler->last_epoch() == 0);
  CHECK(runner.optimizer->param_groups()[0].lr == 0.05);
}

TEST_CASE("sched.monitor: of several splits that are not the score's, none is chosen", "[runner]") {
  struct ManySplits : TinyRunner {
    explicit ManySplits(const TinyConfig& config) : TinyRunner(config) {
      datasets["more"] = Points{make_points(8, 2000), false};
      datasets["val"] = Points{make_points(20, 1000), false};
      before_evaluation_step = [](TinyRunner& self, std::int64_t) {
        if (self.split() != "val") {
          self.meters["extra"].update(1.0);
        }
      };
      before_step = [](TinyRunner& self, std::int64_t) { self.meters["extra"].update(2.0); };
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.sched = plateau("extra");
  ManySplits runner(config);
  Texts warnings;
  collect_warnings(runner, warnings);
  runner.train();
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[1] ==
        "sched.monitor: expected one split with the metric 'extra', got [train, more]; the learning rate does not "
        "change; name '<split>.<metric>'");
}

TEST_CASE("sched.monitor: without a split to evaluate, one of several training splits must be named", "[runner]") {
  struct TwoSplits : TinyRunner {
    explicit TwoSplits(const TinyConfig& config) : TinyRunner(config) {
      datasets["extra"] = Points{make_points(8, 2000), true};
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.evaluate_splits = std::vector<std::string>{};
  config.sched = plateau();
  TwoSplits runner(config);
  CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) ==
        "[runner.train] expected sched.monitor <split>.<metric> with one of the splits [extra, train], got 'loss'");
  config.sched = plateau("extra.loss");
  TwoSplits named(config);
  named.train();
  CHECK(named.scheduler->last_epoch() == 2);
}

TEST_CASE("sched.monitor: an unknown term of the losses is refused before training", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.sched = plateau("val.losses.cee.1");
  TermsRunner runner(config);
  CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) ==
        "[runner.train] expected one of [loss, acc, losses.ce, losses.size] for sched.monitor, got 'losses.cee.1'; did "
        "you mean 'losses.ce'?");
  CHECK(runner.state().train.global_step == 0);
}

TEST_CASE("train_on_batch: evaluations of the program drive a schedule that needs a metric", "[runner]") {
  const Folder folder;
  TinyConfig config = hosted(folder);
  config.sched = {};
  config.sched.type = "cosine";
  config.sched.total_steps = 3;
  config.sched.interval = "epoch";
  {
    HostedRunner runner(config);
    CHECK(error_of<dl::ConfigError>([&] { runner.train_on_batch(pushed(0)); }) ==
          "[runner.train_on_batch] expected sched.interval step in a loop of the program, got 'epoch'");
  }
  config.sched = plateau();
  config.optim.lr = 0.0;  // so that the loss stays
  config.sched.eps = 0.0;
  HostedRunner runner(config);
  std::vector<double> rates;
  for (std::int64_t index = 0; index < 12; ++index) {
    if (runner.train_on_batch(pushed(index)).updated && index % 4 == 3) {
      runner.evaluate_on_batch(make_points(8, 1000), "val");
      runner.finish_evaluation();
      rates.push_back(static_cast<double>(runner.scheduler->last_epoch()));
    }
  }
  runner.finish_training();
  CHECK(rates == std::vector<double>{1, 2, 3});
}

/// The warnings of a program that makes 6 updates, and evaluates `split` twice unless that is empty.
template <class Runner = HostedRunner>
Texts warnings_of_loop(const TinyConfig& config, const std::string& split, std::int64_t steps_of_schedule) {
  Runner runner(config);
  Texts warnings;
  collect_warnings(runner, warnings);
  for (std::int64_t index = 0; index < 12; ++index) {
    runner.train_on_batch(pushed(index));
    if (index % 6 == 5 && !split.empty()) {
      runner.evaluate_on_batch(make_points(8, 1000), split);
      runner.finish_evaluation();
    }
  }
  runner.finish_training();
  CHECK(runner.scheduler->last_epoch() == steps_of_schedule);
  return warnings;
}

TEST_CASE("train_on_batch: a schedule or a patience that no evaluation serves is a warning at the end", "[runner]") {
  const Folder folder;
  TinyConfig config = hosted(folder);
  const std::string advice = "; call evaluate_on_batch and finish_evaluation, or set evaluate_interval and a dataset";
  const std::string rate = "no evaluation had the metric ";
  const std::string kept = ", so sched never changed the learning rate" + advice;
  config.sched = plateau();
  CHECK(warnings_of_loop(config, "val", 2) == Texts{});
  CHECK(warnings_of_loop(config, "", 0) == Texts{rate + "'loss'" + kept});
  config.sched = plateau("val.loss");
  CHECK(warnings_of_loop(config, "val", 2) == Texts{});
  CHECK(warnings_of_loop(config, "held", 0) == Texts{rate + "'val.loss'" + kept});
  config.sched = plateau("losses.ce.1");
  CHECK(warnings_of_loop<HostedTerms>(config, "val", 2) == Texts{});
  config.sched = plateau("val.losses.ce.1");
  CHECK(warnings_of_loop<HostedTerms>(config, "val", 2) == Texts{});
  config.patience = 5;
  config.sched = plateau();
  CHECK(warnings_of_loop(config, "val", 2) == Texts{});
  CHECK(warnings_of_loop(config, "", 0) ==
        Texts{rate + "'loss'" + kept, "patience had no effect: no evaluation had the score 'loss'" + advice});
}

}  // namespace
}  // namespace runner_test
