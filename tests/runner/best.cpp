// The best checkpoint and best.json, where saves fail or a run goes on elsewhere.
#include <cmath>
#include <limits>
#include <stdexcept>

#include <danling/checkpoint/manager.hpp>

#include "fixture.hpp"

namespace runner_test {

// Validation losses by epoch, whatever the model learns.
class ScoredRunner : public TinyRunner {
 public:
  ScoredRunner(const TinyConfig& config, std::vector<double> by_epoch)
      : TinyRunner(config), losses(std::move(by_epoch)) {}

  std::vector<double> losses;

 protected:
  dl::StepOutput evaluate_step(dl::Batch& batch) override {
    auto output = TinyRunner::evaluate_step(batch);
    output.loss = torch::full({}, losses.at(static_cast<std::size_t>(state().train.epoch)));
    return output;
  }
};

/// Trains to the end; returns the directory of the run.
fs::path trained(const TinyConfig& config, const std::vector<double>& losses) {
  ScoredRunner runner(config, losses);
  runner.train();
  CHECK(runner.close());
  return runner.workspace().dir();
}

TEST_CASE("TorchRunner: a best save that fails, with its alias or as a whole, is the best on disk in the end",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  SECTION("asynchronous") {}
  SECTION("synchronous") { config.checkpoint.async_mode = "disabled"; }
  ScoredRunner runner(config, {3, 1, 2, 4});
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
  CHECK_THAT(read_file(runner.workspace().dir() / "best.json"), Catch::Matchers::Contains("\"index\": 2\n"));
}

TEST_CASE(
    "TorchRunner: where the best state is lost, the run and best.json say so, and the next start links another name",
    "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  fs::path dir;
  const std::vector<double> losses = {3, 1, 2, 4};
  {
    ScoredRunner runner(config, losses);
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
          "checkpoint: the best state, of epoch 2, is not on disk; best.pth is not of it: [checkpoint.write] expected "
          "to rename the new file to '" +
              (dir / "checkpoints" / "best.pth").string() + "', got errno 21 (Is a directory)");
    CHECK_FALSE(fs::exists(dir / "best.json"));
    CHECK(runner.close());
    CHECK_THAT(logs_of(dir), Catch::Matchers::Contains(runner.unsaved_best()));
  }
  fs::remove_all(dir / "checkpoints" / "best.pth");
  config.auto_resume = true;
  ScoredRunner runner(config, losses);
  runner.train();
  CHECK(runner.unsaved_best() == "");
  CHECK(runner.close());
  CHECK(epoch_of(dir / "checkpoints" / "best.pth") == 2);
  CHECK_THAT(read_file(dir / "best.json"), Catch::Matchers::Contains("\"index\": 2\n"));
  CHECK_THAT(logs_of(dir), Catch::Matchers::Contains("checkpoint: made best.pth anew from ckpt-e000002.pth"));
}

TEST_CASE("TorchRunner: where the best state is removed with its directory, the run and best.json say so", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  fs::path dir;
  ScoredRunner runner(config, {1, 3, 2, 4});
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

TEST_CASE("TorchRunner: a best.pth that is older than the best result is replaced, or named, at a resume", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  const std::vector<double> losses = {3, 1, 2, 4};
  const auto dir = trained(config, losses);
  // What a process left that was killed after its save of the second epoch had failed.
  const auto best = dir / "checkpoints" / "best.pth";
  fs::remove(best);
  fs::create_hard_link(dir / "checkpoints" / "ckpt-e000001.pth", best);
  config.auto_resume = true;
  SECTION("the history has it") {
    ScoredRunner runner(config, losses);
    runner.train();
    CHECK(runner.unsaved_best() == "");
    CHECK(epoch_of(best) == 2);
  }
  SECTION("nothing has it") {
    fs::remove(dir / "checkpoints" / "ckpt-e000002.pth");
    ScoredRunner runner(config, losses);
    runner.train();
    CHECK(runner.unsaved_best() == "checkpoint: the best state, of epoch 2, is not on disk; best.pth holds epoch 1");
    CHECK(epoch_of(best) == 1);
    CHECK_THAT(read_file(dir / "best.json"), Catch::Matchers::Contains("\"index\": 1\n"));
  }
}

TEST_CASE("TorchRunner: a resumed older checkpoint brings best.json along, with results and latest", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  const std::vector<double> losses = {1, 3, 2, 4};
  const auto dir = trained(config, losses);
  config.resume = (dir / "checkpoints" / "ckpt-e000003.pth").string();
  ScoredRunner runner(config, losses);
  runner.before_step = [&](TinyRunner&, std::int64_t done) {
    if (done == 0) {
      CHECK_THAT(read_file(dir / "best.json"), Catch::Matchers::Contains("\"index\": 1\n"));
      CHECK_THAT(read_file(dir / "latest.json"), Catch::Matchers::Contains("\"index\": 3\n"));
    }
  };
  runner.train();
  CHECK(runner.close());
  CHECK(epoch_of(dir / "checkpoints" / "best.pth") == 1);
  CHECK_THAT(read_file(dir / "best.json"), Catch::Matchers::Contains("\"index\": 1\n"));
}

TEST_CASE("TorchRunner: a run that goes back has the best of the way that it took", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 5;
  config.accum_steps = 1;
  ScoredRunner runner(config, {5, 4, 1, 1, 1});
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
  runner.losses = {5, 4, 6, 6, 6};  // of the way that it takes then
  SECTION("to a file") {
    runner.load_checkpoint(dir / "checkpoints" / "ckpt-e000002.pth");
    CHECK(best() == 2);
  }
  SECTION("to a state") { runner.load_checkpoint(dl::load_file(dir / "checkpoints" / "ckpt-e000002.pth")); }
  runner.train();
  CHECK(runner.close());
  CHECK(best() == 2);
  CHECK_THAT(read_file(dir / "best.json"), Catch::Matchers::Contains("\"index\": 2\n"));
}

TEST_CASE("TorchRunner: scores that are not numbers have no best, also when a finished run is started again",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.auto_resume = true;
  for (int start = 0; start < 2; ++start) {
    ScoredRunner runner(config, std::vector<double>(2, std::numeric_limits<double>::quiet_NaN()));
    runner.train();
    const auto dir = runner.workspace().dir();
    CHECK(runner.close());
    CHECK_FALSE(fs::exists(dir / "best.json"));
    CHECK_FALSE(fs::exists(dir / "checkpoints" / "best.pth"));
    CHECK(fs::exists(dir / "latest.json"));
  }
}

TEST_CASE("ResultBook: the saved best is the last row within 1e-7 of the best when it was appended", "[runner]") {
  dl::ResultBook book;
  book.select("val", "loss");
  CHECK(book.saved_best() == nullptr);
  const auto append = [&](std::int64_t index, double loss) {
    dl::Result result;
    result["val"].set("loss", loss);
    book.append(index, result);
  };
  append(0, std::nan(""));
  CHECK(book.saved_best() == nullptr);
  append(1, 0.5);
  append(2, 0.5 + 5e-8);  // is_best() is true here, so that best.pth is written once more
  CHECK(book.is_best());
  append(3, 0.7);
  REQUIRE(book.saved_best() != nullptr);
  CHECK(book.saved_best()->index == 2);
  CHECK(book.best_index() == 1);
}

}  // namespace runner_test
