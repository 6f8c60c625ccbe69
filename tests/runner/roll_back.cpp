// Roll-backs restore everything, whatever checkpoint.exclude_from_loading leaves out of a resumed checkpoint.
#include "fixture.hpp"

namespace runner_test {
namespace {

/// The micro-batch with this micro_step is NaN, in each pass through it.
struct Spoilt : TinyRunner {
  explicit Spoilt(const TinyConfig& config, std::int64_t bad) : TinyRunner(config), bad_(bad) {}

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (state().train.micro_step == bad_) {
      batch.input = batch.input * std::numeric_limits<double>::quiet_NaN();
    }
    return TinyRunner::train_step(batch);
  }

 private:
  std::int64_t bad_;
};

TinyConfig scheduled(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 4;  // 7 micro-batches each
  config.dropout = 0;
  config.optim.lr = 0.01;
  config.sched.type = "linear";
  config.sched.interval = "epoch";
  config.log_interval = 2;
  return config;
}

/// Everything that training changes, but for the policy's own state.
dl::State trained_parts(TinyConfig config, std::int64_t bad) {
  Spoilt runner(config, bad);
  runner.train();
  CHECK(runner.close());
  const dl::State checkpoint = outcome_of(runner.workspace().dir()).checkpoint;
  dl::State out;
  for (const auto* part : {"model", "optimizer", "scheduler", "state", "results"}) {
    out[part] = checkpoint.at(part);
  }
  return out;
}

TEST_CASE("rollback: restores everything, whatever exclude_from_loading names", "[runner]") {
  const auto with = [](std::vector<std::string> excluded) {
    const Folder folder;
    TinyConfig config = scheduled(folder);
    config.on_nonfinite = "rollback";
    config.checkpoint.exclude_from_loading = std::move(excluded);
    return trained_parts(config, 10);
  };
  const dl::State expected = with({});
  CHECK(expected.at("state").at("train").at("global_step").integer() == 27);  // all but the bad one
  for (const std::string part : {"model", "optimizer", "optimizer.param_groups.0.lr", "scheduler", "state",
                                 "state.train", "results", "dataloaders", "loop", "runner"}) {
    CAPTURE(part);
    CHECK(dl::first_difference(expected, with({part})) == "");
  }
}

TEST_CASE("rollback: before the first save of a resumed run it restores what the run resumed with", "[runner]") {
  const std::int64_t stop = GENERATE(7, 10);  // at the end of an epoch, and in one
  const auto parts = GENERATE(std::vector<std::string>{"optimizer"}, std::vector<std::string>{"optimizer", "scheduler"},
                              std::vector<std::string>{"state.rng", "results"});
  CAPTURE(stop, parts);
  const auto resumed_with = [&](const std::string& policy) {
    const Folder folder;
    TinyConfig config = scheduled(folder);
    config.auto_resume = true;
    {
      TinyRunner runner(config);
      train_until(runner, stop);
    }
    config.on_nonfinite = policy;
    config.checkpoint.exclude_from_loading = parts;
    return trained_parts(config, 12);
  };
  // Without dropout a window that is passed over equals one whose update is skipped.
  const dl::State skipped = resumed_with("skip");
  CHECK(skipped.at("state").at("train").at("global_step").integer() == 27);
  dl::State expected = skipped;
  dl::State rolled_back = resumed_with("rollback");
  expected.map().erase("results");  // the averages of a skipped loss hold NaN
  rolled_back.map().erase("results");
  CHECK(dl::first_difference(expected, rolled_back) == "");
}

}  // namespace
}  // namespace runner_test
