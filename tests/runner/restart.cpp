// Starting a run again: its seed, its directory, and starts that are errors.
#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("restart: the same seed gives the same model.pth, byte for byte", "[runner]") {
  std::string first;
  for (int i = 0; i < 2; ++i) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 2;
    TinyRunner runner(config);
    runner.train();
    const auto bytes = read_file(runner.workspace().dir() / "checkpoints" / "model.pth");
    CHECK(bytes.size() > 100);
    if (i == 0) {
      first = bytes;
    } else {
      CHECK(first == bytes);
    }
  }
}

TEST_CASE("restart: a generated seed resumes with the run", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.seed.reset();
  config.epochs = 1;
  std::uint64_t seed = 0;
  {
    TinyRunner runner(config);
    runner.train();
    seed = runner.seed();
  }
  config.epochs = 2;
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.seed() == seed);
  CHECK(runner.state().train.epoch == 2);
}

TEST_CASE("restart: training from the start moves the files of the earlier attempt to attempts/", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  const auto dir = trained(config);
  const auto first = read_file(dir / "checkpoints" / "latest.pth");
  TinyRunner runner(config);
  runner.evaluate();
  CHECK(runner.workspace().dir() == dir);
  CHECK(read_file(dir / "checkpoints" / "latest.pth") == first);  // only training takes the directory
  CHECK_FALSE(fs::exists(dir / "attempts"));
  runner.before_step = [&](TinyRunner&, std::int64_t) { CHECK_FALSE(fs::exists(dir / "checkpoints" / "latest.pth")); };
  runner.train();
  int attempts = 0;
  for (const auto& attempt : fs::directory_iterator(dir / "attempts")) {
    ++attempts;
    CHECK(read_file(attempt.path() / "checkpoints" / "latest.pth") == first);
  }
  CHECK(attempts == 1);
}

TEST_CASE("restart: resuming with another architecture or a missing file is an error that names the difference",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  const auto latest = trained(config) / "checkpoints" / "latest.pth";
  const auto before = read_file(latest);
  config.resume = latest.string();
  config.hidden = 9;
  {
    TinyRunner runner(config);
    CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) ==
          "[runner.load_checkpoint] expected the same config as the checkpoint's, got one where hidden is "
          "8 in the checkpoint and 9 here (start a new run, align the config, or put 'runner' into "
          "checkpoint.exclude_from_loading)");
  }
  config.checkpoint.exclude_from_loading = {"runner"};
  {
    TinyRunner runner(config);
    CHECK_THAT(error_of<dl::CheckpointError>([&] { runner.train(); }),
               ContainsSubstring("expected weights of the same architecture, got 3 of another shape (0.weight is Float "
                                 "[9, 4] here and Float [8, 4] there, "));
  }
  config.checkpoint.exclude_from_loading.clear();
  config.hidden = 8;
  config.resume = (folder.path() / "none.pth").string();
  {
    TinyRunner runner(config);
    CHECK_THAT(error_of<dl::CheckpointError>([&] { runner.train(); }), ContainsSubstring("none.pth"));
  }
  CHECK(read_file(latest) == before);
}

TEST_CASE("restart: an error at the start does not move the files of the earlier attempt", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  const auto checkpoints = trained(config) / "checkpoints";
  const auto before = read_file(checkpoints / "latest.pth");
  SECTION("an unknown split") { config.score_split = "vall"; }
  SECTION("a resume from nowhere") { config.resume = (folder.path() / "none.pth").string(); }
  SECTION("an unknown score") { config.score_name = "accuracy.top"; }
  SECTION("a split without a number of steps") { config.epochs.reset(); }
  SECTION("batches larger than the data") {
    config.dataloader.splits["train"] = {};
    config.records = 3;
    config.dataloader.drop_last = true;
  }
  {
    TinyRunner runner(config);
    CHECK_THROWS_AS(runner.train(), dl::Error);
  }
  CHECK(read_file(checkpoints / "latest.pth") == before);
  CHECK_FALSE(fs::exists(checkpoints.parent_path() / "attempts"));
}

}  // namespace
}  // namespace runner_test
