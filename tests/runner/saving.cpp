// Saving while training: where in a step, on which thread, and what the files are for.
#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include <danling/checkpoint/manager.hpp>

#include "fixture.hpp"

namespace runner_test {

TEST_CASE("TorchRunner: synchronous and asynchronous saves leave the same checkpoints", "[runner]") {
  std::vector<std::map<std::string, dl::State>> seen;
  for (const char* mode : {"disabled", "async", "async_with_pinned_mem"}) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 5;
    config.checkpoint.async_mode = mode;
    config.checkpoint.keep_latest_k = 2;
    TinyRunner runner(config);
    runner.train();
    const auto dir = runner.workspace().dir() / "checkpoints";
    auto& files = seen.emplace_back();  // train() has waited for the disk: no close() needed
    for (const auto& entry : fs::directory_iterator(dir)) {
      if (entry.path().extension() != ".pth") {
        continue;
      }
      dl::State state = dl::load_file(entry.path());
      state.map().erase("runner");  // holds the mode and the folder
      files[entry.path().filename().string()] = std::move(state);
    }
  }
  CHECK(seen[0].size() == 6);
  for (const auto& [name, state] : seen[0]) {
    CAPTURE(name);
    REQUIRE(seen[1].contains(name));
    REQUIRE(seen[2].contains(name));
    CHECK(dl::first_difference(state, seen[1].at(name)) == "");
    CHECK(dl::first_difference(state, seen[2].at(name)) == "");
  }
}

TEST_CASE("TorchRunner: a save asked for inside a step or a window is taken where the window ends, and resumes exactly",
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

TEST_CASE("TorchRunner: an error of the program's own state_dict is told as it is", "[runner]") {
  struct Unsavable : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::State state_dict() override { throw std::runtime_error("cannot serialise my replay buffer"); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  Unsavable runner(config);
  CHECK(danling_test::error_of<std::runtime_error>([&] { runner.train(); }) == "cannot serialise my replay buffer");
}

TEST_CASE("TorchRunner: a save after a step that threw says that it may not resume exactly", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.accum_steps = 3;
  TinyRunner runner(config);
  runner.before_step = [](TinyRunner&, std::int64_t done) {
    if (done == 8) {
      throw std::runtime_error("a bad batch");
    }
  };
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

TEST_CASE("TorchRunner: a finished run whose process died before it saved the model does so at the next start",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  SECTION("epochs") {}
  SECTION("steps") {
    config.epochs.reset();
    config.steps = 9;
  }
  fs::path model;
  {
    TinyRunner runner(config);
    runner.train();
    model = runner.workspace().checkpoint_dir() / "model.pth";
  }
  const auto bytes = read_file(model);
  fs::rename(model, model.parent_path() / ".model.pth.tmp-1-0");
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.train();
  CHECK(read_file(model) == bytes);
  CHECK_FALSE(fs::exists(model.parent_path() / ".model.pth.tmp-1-0"));
}

TEST_CASE("TorchRunner: a seed checkpoint starts other runs from the same state", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  runner.save_seed_checkpoint();
  const auto seed = runner.workspace().dir() / "checkpoints" / "seed.pth";
  runner.settle_checkpoints();
  CHECK(dl::load_file(seed).at("state").at("train").at("global_step").integer() == 0);
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
  CHECK_THAT(logs_of(again.workspace().dir()),
             Catch::Matchers::Contains(
                 "runner.save_seed_checkpoint: expected a run that has not advanced, got epoch 1, step 7"));
}

TEST_CASE("TorchRunner: the history keeps the checkpoints with the best scores", "[runner]") {
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

}  // namespace runner_test
