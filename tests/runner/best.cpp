// best.pth and best.json after failed saves and in resumed runs.
#include <danling/checkpoint/manager.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("best: after a failed save of the best, the next save writes best.pth", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  SECTION("asynchronous") {}
  SECTION("synchronous") { config.checkpoint.async_mode = "disabled"; }
  TinyRunner runner(config);
  runner.evaluation_loss = losses_by_epoch({3, 1, 2, 4});
  const auto blocked = [&] { return runner.workspace().checkpoint_dir() / "best.pth"; };
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == 7) {  // in the second epoch
      self.checkpoint_manager().wait(std::nullopt);
      fs::remove(blocked());
      fs::create_directories(blocked() / "in the way");
    } else if (done == 20) {  // before the third save
      fs::remove_all(blocked());
    }
  };
  runner.train();
  CHECK(runner.unsaved_best() == "");
  CHECK(runner.close());
  CHECK(epoch_of(blocked()) == 2);
  CHECK_THAT(read_file(runner.workspace().dir() / "best.json"), ContainsSubstring("\"index\": 2\n"));
}

TEST_CASE("best: if best.pth cannot be written the run says so, and the next start links the history to it",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  fs::path dir;
  const std::vector<double> losses = {3, 1, 2, 4};
  {
    TinyRunner runner(config);
    runner.evaluation_loss = losses_by_epoch(losses);
    runner.before_step = [&](TinyRunner& self, std::int64_t done) {
      dir = self.workspace().dir();
      if (done == 7) {
        self.checkpoint_manager().wait(std::nullopt);
        fs::remove(dir / "checkpoints" / "best.pth");
        fs::create_directories(dir / "checkpoints" / "best.pth" / "in the way");
      }
    };
    runner.train();
    CHECK(runner.unsaved_best() ==
          "checkpoint: the best state, of epoch 2, is not on disk; best.pth holds another state: [checkpoint.write] "
          "expected "
          "to rename the new file to '" +
              (dir / "checkpoints" / "best.pth").string() + "', got errno 21 (Is a directory)");
    CHECK_FALSE(fs::exists(dir / "best.json"));
    CHECK(runner.close());
    CHECK_THAT(logs_of(dir), ContainsSubstring(runner.unsaved_best()));
  }
  fs::remove_all(dir / "checkpoints" / "best.pth");
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.evaluation_loss = losses_by_epoch(losses);
  runner.train();
  CHECK(runner.unsaved_best() == "");
  CHECK(runner.close());
  CHECK(epoch_of(dir / "checkpoints" / "best.pth") == 2);
  CHECK_THAT(read_file(dir / "best.json"), ContainsSubstring("\"index\": 2\n"));
  CHECK_THAT(logs_of(dir), ContainsSubstring("checkpoint: recreated best.pth from ckpt-e000002.pth"));
}

TEST_CASE("best: if the best state is removed, the run says so and removes best.json", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  fs::path dir;
  TinyRunner runner(config);
  runner.evaluation_loss = losses_by_epoch({1, 3, 2, 4});
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    dir = self.workspace().dir();
    if (done == 16) {  // in the third epoch
      self.checkpoint_manager().wait(std::nullopt);
      fs::remove_all(dir / "checkpoints");
    }
  };
  runner.train();
  CHECK(runner.unsaved_best() == "checkpoint: the best state, of epoch 1, is not on disk; there is no best.pth");
  CHECK_FALSE(fs::exists(dir / "best.json"));
  CHECK(runner.close());
}

TEST_CASE("best: resume replaces a best.pth older than the best result, or names its epoch", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  const std::vector<double> losses = {3, 1, 2, 4};
  const auto dir = trained(config, losses_by_epoch(losses));
  // The files of a process that was killed after a failed save of the second epoch.
  const auto best = dir / "checkpoints" / "best.pth";
  fs::remove(best);
  fs::create_hard_link(dir / "checkpoints" / "ckpt-e000001.pth", best);
  config.auto_resume = true;
  SECTION("the history has it") {
    TinyRunner runner(config);
    runner.evaluation_loss = losses_by_epoch(losses);
    runner.train();
    CHECK(runner.unsaved_best() == "");
    CHECK(epoch_of(best) == 2);
  }
  SECTION("nothing has it") {
    fs::remove(dir / "checkpoints" / "ckpt-e000002.pth");
    TinyRunner runner(config);
    runner.evaluation_loss = losses_by_epoch(losses);
    runner.train();
    CHECK(runner.unsaved_best() == "checkpoint: the best state, of epoch 2, is not on disk; best.pth holds epoch 1");
    CHECK(epoch_of(best) == 1);
    CHECK_THAT(read_file(dir / "best.json"), ContainsSubstring("\"index\": 1\n"));
  }
}

TEST_CASE("best: resuming an older checkpoint restores best.json and latest.json", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  const std::vector<double> losses = {1, 3, 2, 4};
  const auto dir = trained(config, losses_by_epoch(losses));
  config.resume = (dir / "checkpoints" / "ckpt-e000003.pth").string();
  TinyRunner runner(config);
  runner.evaluation_loss = losses_by_epoch(losses);
  runner.before_step = [&](TinyRunner&, std::int64_t done) {
    if (done == 0) {
      CHECK_THAT(read_file(dir / "best.json"), ContainsSubstring("\"index\": 1\n"));
      CHECK_THAT(read_file(dir / "latest.json"), ContainsSubstring("\"index\": 3\n"));
    }
  };
  runner.train();
  CHECK(runner.close());
  CHECK(epoch_of(dir / "checkpoints" / "best.pth") == 1);
  CHECK_THAT(read_file(dir / "best.json"), ContainsSubstring("\"index\": 1\n"));
}

TEST_CASE("best: after load_checkpoint of an earlier epoch best.pth is the best since", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 5;
  config.accum_steps = 1;
  TinyRunner runner(config);
  runner.evaluation_loss = losses_by_epoch({5, 4, 1, 1, 1});
  std::int64_t steps = 0;
  runner.before_step = [&](TinyRunner& self, std::int64_t) {
    if (self.state().train.epoch == 4 && ++steps == 1) {
      throw std::runtime_error("go back");
    }
  };
  CHECK_THROWS_AS(runner.train(), std::runtime_error);
  const auto dir = runner.workspace().dir();
  const auto best = [&] { return dl::load_file(dir / "checkpoints" / "best.pth").at("results").list().size(); };
  runner.checkpoint_manager().wait(std::nullopt);
  CHECK(best() == 4);
  runner.evaluation_loss = losses_by_epoch({5, 4, 6, 6, 6});
  SECTION("to a file") {
    runner.load_checkpoint(dir / "checkpoints" / "ckpt-e000002.pth");
    CHECK(best() == 2);
  }
  SECTION("to a state") { runner.load_checkpoint(dl::load_file(dir / "checkpoints" / "ckpt-e000002.pth")); }
  runner.train();
  CHECK(runner.close());
  CHECK(best() == 2);
  CHECK_THAT(read_file(dir / "best.json"), ContainsSubstring("\"index\": 2\n"));
}

TEST_CASE("best: best.pth is the best epoch, also between the saves of checkpoint.interval", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 7;
  config.checkpoint.interval = 5;
  const auto dir = trained(config, losses_by_epoch({1, 2, 0, 4, 5, 6, 7}));
  CHECK(epoch_of(dir / "checkpoints" / "best.pth") == 3);
}

TEST_CASE("best: by steps best.pth is the newest state until the first evaluation", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 6;
  config.checkpoint.interval = 2;
  std::optional<std::int64_t> published;
  {
    TinyRunner runner(config);
    runner.before_step = [&](TinyRunner& self, std::int64_t done) {
      if (done == 5) {
        self.checkpoint_manager().wait(std::nullopt);
        published = step_of(self.workspace().checkpoint_dir() / "best.pth");
      }
    };
    runner.train();
  }
  CHECK(published == 4);
}

TEST_CASE("best: resume replaces a best.pth from before the first evaluation", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 6;
  config.checkpoint.interval = 2;
  const auto files = trained(config) / "checkpoints";
  CHECK(step_of(files / "best.pth") == 6);
  fs::remove(files / "best.pth");
  fs::copy(files / "ckpt-s000000000002.pth", files / "best.pth");  // as if the process died before it replaced it
  config.auto_resume = true;
  trained(config);
  CHECK(step_of(files / "best.pth") == 6);
}

TEST_CASE("best: a run by steps without evaluation has no best.pth", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 6;
  config.checkpoint.interval = 2;
  config.evaluate_splits = std::vector<std::string>();
  CHECK_FALSE(fs::exists(trained(config) / "checkpoints" / "best.pth"));
}

}  // namespace
}  // namespace runner_test
