// Resuming with another number of workers or another batch size.
#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("resume: a run that resumes with another number of workers equals one that does not stop, bit for bit",
          "[runner]") {
  TinyConfig config;
  config.epochs = 3;
  config.log_interval = 2;
  const auto whole = run_through(config);
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  const std::vector<std::int64_t> workers = {0, 2, 1, 0};
  for (std::size_t attempt = 0; attempt < workers.size(); ++attempt) {
    config.dataloader.num_workers = workers[attempt];
    TinyRunner runner(config);
    if (attempt + 1 < workers.size()) {
      train_until(runner, 4);
      continue;
    }
    runner.train();
    CHECK(runner.close());
    check_same(outcome_of(runner.workspace().dir()), whole);
  }
  CHECK(run_through([] {
          TinyConfig ahead;
          ahead.epochs = 3;
          ahead.log_interval = 2;
          ahead.dataloader.num_workers = 2;
          return ahead;
        }())
            .metrics == whole.metrics);
}

/// Records the first feature of the samples that it trains on.
class SeenRunner : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;
  std::vector<double> seen;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      seen.push_back(batch.input[i][0].item<double>());
    }
    return TinyRunner::train_step(batch);
  }
};

TEST_CASE("resume: with another batch size an epoch continues with the records that it has not seen", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  std::vector<double> whole;
  {
    TinyConfig other = config;
    other.lineage = "whole";
    SeenRunner runner(other);
    runner.train();
    whole = runner.seen;
  }
  REQUIRE(whole.size() == 50);
  std::vector<double> seen;
  fs::path latest;
  {
    SeenRunner runner(config);
    train_until(runner, 2);
    seen = runner.seen;
    latest = runner.workspace().dir() / "checkpoints" / "latest.pth";
  }
  CHECK(seen.size() == 24);
  config.dataloader.batch_size = 5;
  config.resume = latest.string();
  {
    SeenRunner refused(config);  // the batch size takes part in the id
    CHECK_THROWS_AS(refused.train(), dl::ConfigError);
  }
  config.checkpoint.exclude_from_loading = {"runner"};
  SeenRunner runner(config);
  runner.train();
  seen.insert(seen.end(), runner.seen.begin(), runner.seen.end());
  CHECK(seen == whole);
}

}  // namespace
}  // namespace runner_test
