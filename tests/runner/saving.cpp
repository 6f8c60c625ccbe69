// Saves while a run trains: when, in which mode, and which files.
#include <set>

#include <danling/checkpoint/manager.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("checkpoint.async_mode: all modes write the same checkpoints", "[runner]") {
  std::vector<std::map<std::string, dl::State>> seen;
  for (const char* mode : {"disabled", "async", "async_with_pinned_mem"}) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 5;
    config.checkpoint.async_mode = mode;
    config.checkpoint.keep_latest_k = 2;
    TinyRunner runner(config);
    runner.train();
    // train() has waited for the disk: close() is not necessary.
    seen.push_back(checkpoints_in(runner.workspace().checkpoint_dir(), /*with_previous=*/true));
  }
  CHECK(seen[0].size() == 6);
  check_same_checkpoints(seen[0], seen[1]);
  check_same_checkpoints(seen[0], seen[2]);
}

TEST_CASE("save_checkpoint: within a step or window it waits for the end of the window, and resumes bit for bit",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.accum_steps = 3;
  config.log_interval = 2;
  dl::State whole;
  {
    TinyRunner runner(config);
    runner.before_step = [](TinyRunner& self, std::int64_t done) {
      if (done == 8) {  // the second micro-batch of the first window of the second epoch (7 batches an epoch)
        self.save_checkpoint("inside", /*save_best=*/false, /*last_step=*/false, /*force=*/true);
      }
    };
    runner.train();
    CHECK(runner.close());
    whole = dl::load_file(runner.workspace().dir() / "checkpoints" / "latest.pth");
    const auto inside = dl::load_file(runner.workspace().dir() / "checkpoints" / "inside.pth");
    CHECK(inside.at("state").at("train").at("micro_step").integer() % 3 == 0);
    CHECK(inside.at("state").at("train").at("global_step").integer() == 4);
    CHECK(inside.at("loop").at("iteration").integer() == 3);
    config.resume = (runner.workspace().dir() / "checkpoints" / "inside.pth").string();
  }
  const Folder other;
  config.workspace_root = other.path().string();
  TinyRunner resumed(config);
  resumed.train();
  dl::State again = dl::load_file(resumed.workspace().dir() / "checkpoints" / "latest.pth");
  whole.map().erase("runner");
  again.map().erase("runner");
  CHECK(dl::first_difference(whole, again) == "");
}

TEST_CASE("save_checkpoint: an exception of an overridden state_dict passes unchanged", "[runner]") {
  struct Unsavable : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::State state_dict() override { throw std::runtime_error("cannot serialise my replay buffer"); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  Unsavable runner(config);
  CHECK(error_of<std::runtime_error>([&] { runner.train(); }) == "cannot serialise my replay buffer");
}

TEST_CASE("save_checkpoint: after a step that threw a warning says that the run may not resume exactly", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.accum_steps = 3;
  TinyRunner runner(config);
  throw_before(runner, 8);
  CHECK_THROWS_AS(runner.train(), std::runtime_error);
  std::size_t warnings = 1;
  SECTION("as it is") {}
  SECTION("not after a checkpoint was loaded") {
    runner.load_checkpoint(runner.workspace().checkpoint_dir() / "latest.pth");
    warnings = 0;
  }
  runner.save_checkpoint("rescue", false, false, true);
  CHECK(runner.close());
  CHECK(count(logs_of(runner.workspace().dir()), "a step threw before this save") == warnings);
}

TEST_CASE("wait_for_checkpoints, load_state_dict: before initialize() they are errors", "[runner]") {
  const Folder folder;
  TinyRunner runner{TinyConfig(folder)};
  CHECK(error_of<dl::StateError>([&] { runner.wait_for_checkpoints(); }) ==
        "[runner.wait_for_checkpoints] expected a call after initialize(), got one before");
  CHECK(error_of<dl::StateError>([&] { runner.load_state_dict(dl::State(dl::State::Map())); }) ==
        "[runner.load_state_dict] expected a call by load_checkpoint(), got one before initialize()");
}

TEST_CASE("save_seed_checkpoint: other runs start from its state", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  runner.save_seed_checkpoint();
  const auto seed = runner.workspace().dir() / "checkpoints" / "seed.pth";
  runner.wait_for_checkpoints();
  CHECK(step_of(seed) == 0);
  runner.train();
  const auto trained = runner.model.state_dict();
  CHECK(runner.close());

  const Folder other;
  config.workspace_root = other.path().string();
  config.resume = seed.string();
  TinyRunner again(config);
  again.train();
  CHECK(dl::first_difference(trained, again.model.state_dict()) == "");
  again.save_seed_checkpoint("late");
  CHECK(again.close());
  CHECK_THAT(
      logs_of(again.workspace().dir()),
      ContainsSubstring("runner.save_seed_checkpoint: expected a run that has not advanced, got epoch 1, step 7"));
}

TEST_CASE("checkpoint.keep_best_k: the history keeps the checkpoints with the best scores", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 8;
  config.checkpoint.keep_best_k = 2;
  TinyRunner runner(config);
  const auto scores = runner.train().scores();
  CHECK(runner.close());
  // By loss: lower is better, and the newest of all stays as well.
  std::vector<std::pair<double, std::int64_t>> order;
  for (const auto& [epoch, loss] : scores) {
    order.emplace_back(loss, epoch);
  }
  std::sort(order.begin(), order.end());
  std::set<std::string> expected = {"ckpt-e000008"};
  for (int i = 0; i < 2; ++i) {
    expected.insert("ckpt-e00000" + std::to_string(order[static_cast<std::size_t>(i)].second + 1));
  }
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(runner.workspace().dir() / "checkpoints")) {
    if (entry.path().stem().string().starts_with("ckpt-")) {
      found.insert(entry.path().stem().string());
    }
  }
  CHECK(found == expected);
}

}  // namespace
}  // namespace runner_test
