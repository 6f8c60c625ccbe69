// Scores that are not numbers: they are never the best, in files and after a resume.
#include <nlohmann/json.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST_CASE("score: an epoch with a score of NaN is not the best, and counts for patience", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  config.patience = 3;
  TinyRunner runner(config);
  runner.evaluation_loss = losses_by_epoch({std::nan("")});
  runner.train();
  runner.write_summary("finished");
  CHECK(runner.close());
  CHECK(runner.state().train.epoch == 3);
  const auto dir = runner.workspace().dir();
  CHECK_FALSE(fs::exists(dir / "best.json"));
  CHECK_FALSE(fs::exists(dir / "checkpoints" / "best.pth"));
  const auto details = nlohmann::json::parse(read_file(dir / "summary.json"))["details"];
  CHECK_FALSE(details.contains("best_index"));
  CHECK_FALSE(details.contains("best"));
  CHECK(details["latest"]["val"]["loss"] == "NaN");
  CHECK(count(logs_of(dir), "(best)") == 0);
}

TEST_CASE("score: after NaN and a resume the best is the first number", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  const auto losses = losses_by_epoch({std::nan(""), 0.75, infinity});
  trained(config, losses);
  config.epochs = 3;
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.evaluation_loss = losses;
  CHECK(runner.train().best_index() == 1);
  runner.write_summary("finished");
  CHECK(runner.close());
  const auto dir = runner.workspace().dir();
  CHECK(nlohmann::json::parse(read_file(dir / "best.json"))["index"] == 2);
  CHECK(epoch_of(dir / "checkpoints" / "best.pth") == 2);
  CHECK(nlohmann::json::parse(read_file(dir / "summary.json"))["details"]["best_index"] == 2);
}

TEST_CASE("score: a run whose scores are NaN has no best, also after a restart", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.auto_resume = true;
  for (int start = 0; start < 2; ++start) {
    const auto dir = trained(config, losses_by_epoch({std::nan("")}));
    CHECK_FALSE(fs::exists(dir / "best.json"));
    CHECK_FALSE(fs::exists(dir / "checkpoints" / "best.pth"));
    CHECK(fs::exists(dir / "latest.json"));
  }
}

}  // namespace
}  // namespace runner_test
