// After an error in training: what is dropped, what is logged, and what other ranks receive.
#include "hosted.hpp"
#include "models.hpp"
#include "rank_runner.hpp"

namespace runner_test {
namespace {

constexpr auto inexact =
    "runner.save_checkpoint: a step threw before this save: a run resumed from it may differ from an uninterrupted "
    "one; load an earlier checkpoint to resume exactly";

TEST_CASE("errors: train() after one warns that the pass begins anew", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  TinyRunner runner(config);
  throw_before(runner, 9);  // the third of seven in the second epoch
  CHECK_THROWS(runner.train());
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.before_step = nullptr;
  const std::string expected =
      "runner.train: an error ended the pass over split 'train' after 2 batches; it restarts with the current "
      "parameters (call load_checkpoint first to resume from a checkpoint)";
  SECTION("alone") {
    runner.train();
    CHECK(warnings == std::vector<std::string>{expected, inexact});
    CHECK(runner.state().train.global_step == 7 + 2 + 7);
  }
  SECTION("not after load_checkpoint") {
    runner.load_checkpoint(runner.workspace().checkpoint_dir() / "latest.pth");
    runner.train();
    CHECK(warnings.empty());
    CHECK(runner.state().train.global_step == 14);
  }
}

TEST_CASE("errors: after one in an evaluation train() repeats the evaluation alone", "[runner]") {
  TinyConfig config;
  const bool by_steps = GENERATE(false, true);
  if (by_steps) {
    config.steps = 14;
    config.evaluate_interval = 7;
  } else {
    config.epochs = 2;
  }
  std::vector<at::Tensor> parameters[2];
  for (const bool broken : {false, true}) {
    const Folder folder;
    config.workspace_root = folder.path().string();
    TinyRunner runner(config);
    if (broken) {
      runner.before_evaluation_step = [](TinyRunner&, std::int64_t done) {
        if (done == 1) {
          throw std::runtime_error("a bad batch");
        }
      };
      CHECK_THROWS(runner.train());
      runner.before_evaluation_step = nullptr;
    }
    runner.train();
    CHECK(runner.state().train.global_step == 14);
    CHECK(indices_of(runner.results()) ==
          (by_steps ? std::vector<std::int64_t>{7, 14} : std::vector<std::int64_t>{0, 1}));
    for (const auto& [name, value] : runner.model.named_parameters()) {
      parameters[broken ? 1 : 0].push_back(value.detach().clone());
    }
  }
  for (std::size_t i = 0; i < parameters[0].size(); ++i) {
    CHECK(torch::equal(parameters[0][i], parameters[1][i]));
  }
}

TEST_CASE("stop: train() again after one changes nothing of the checkpoint", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  const bool by_steps = GENERATE(false, true);
  by_steps ? config.steps = 14 : config.epochs = 2;
  TinyRunner runner(config);
  train_until(runner, 9);
  const auto file = runner.workspace().checkpoint_dir() / "latest.pth";
  const dl::State saved = dl::load_file(file);
  CHECK_THROWS_AS(runner.train(), dl::Stopped);  // a loop that tries again
  const dl::State again = dl::load_file(file);
  for (const char* part : {"dataloaders", "loop", "state", "model", "optimizer"}) {
    INFO(part);
    CHECK(dl::first_difference(again.at(part), saved.at(part)) == "");
  }
}

TEST_CASE("errors: by steps the loader continues after one between two passes", "[runner]") {
  // An error in an evaluation in the middle of a pass over the data.
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 6;
  config.evaluate_interval = 3;
  config.dataloader.shuffle = false;
  struct Reading : TinyRunner {
    using TinyRunner::TinyRunner;
    ~Reading() override { close(); }
    std::vector<float> first;
    dl::StepOutput train_step(dl::Batch& batch) override {
      first.push_back(batch.input[0][0].item<float>());
      return TinyRunner::train_step(batch);
    }
  };
  Reading runner(config);
  runner.before_evaluation_step = [](TinyRunner&, std::int64_t done) {
    if (done == 0) {
      throw std::runtime_error("a bad batch");
    }
  };
  CHECK_THROWS(runner.train());
  runner.before_evaluation_step = nullptr;
  runner.train();
  std::vector<float> expected;
  for (std::int64_t i = 0; i < 6; ++i) {
    expected.push_back(make_points(50, 0).input[8 * i][0].item<float>());
  }
  CHECK(runner.first == expected);
}

TEST_CASE("errors: the next accumulation window is whole", "[runner]") {
  const Folder folder;
  TinyConfig config = hosted(folder);
  config.accum_steps = 4;
  HostedRunner runner(config);
  std::vector<bool> updated;
  for (std::int64_t i = 0; i < 10; ++i) {
    if (i == 1) {
      dl::Batch bad = pushed(i);
      bad.input = bad.input.narrow(1, 0, 3);
      CHECK_THROWS(runner.train_on_batch(std::move(bad)));
    } else {
      updated.push_back(runner.train_on_batch(pushed(i)).updated);
    }
  }
  // The first window is dropped with its batch before the error.
  CHECK(updated == std::vector<bool>{false, false, false, false, true, false, false, false, true});
}

TEST_CASE("errors: a host's evaluation of the last step that was cut off is repeated", "[runner]") {
  struct Cutting : dl::Callback {
    std::string how;
    void on_evaluate_begin(const dl::SplitEvent& event) override {
      if (event.runner.state().train.global_step == 4 && how == "stop") {
        event.runner.request_stop();
      } else if (event.runner.state().train.global_step == 4 && how == "error") {
        throw std::runtime_error("no room");
      }
    }
  };
  const std::string how = GENERATE(std::string("stop"), std::string("error"));
  const Folder folder;
  TinyConfig config = hosted(folder);
  config.steps = 4;
  config.accum_steps = 1;
  config.evaluate_interval = 2;
  config.auto_resume = true;
  const auto with_data = [&] {
    auto runner = std::make_unique<HostedRunner>(config);
    runner->datasets["val"] = Points{make_points(20, 1000), false};
    return runner;
  };
  auto runner = with_data();
  auto& cutting = runner->add(Cutting());
  cutting.how = how;
  for (std::int64_t i = 0; i < 3; ++i) {
    runner->train_on_batch(pushed(i));
  }
  CHECK_THROWS(runner->train_on_batch(pushed(3)));
  if (how == "stop") {
    runner = nullptr;
    runner = with_data();
    CHECK(runner->train_on_batch(pushed(4)).done);
  } else {
    cutting.how.clear();
  }
  runner->finish_training();
  CHECK(indices_of(runner->results()).back() == 4);
  CHECK(runner->results().latest()->result.number("val.loss") != nullptr);
  CHECK(runner->state().train.global_step == 4);
}

TEST_CASE("errors: a save after an error between the updates of two models warns", "[runner]") {
  struct Broken : GanRunner {
    using GanRunner::GanRunner;
    int batches = 0;
    dl::StepOutput train_step(dl::Batch& batch) override {
      if (++batches == 3) {
        const auto loss = score(models["discriminator"](batch.input), 1.0);
        backward(loss, "discriminator");
        step("discriminator");  // an update
        throw std::runtime_error("a bad batch");
      }
      return GanRunner::train_step(batch);
    }
  };
  const Folder folder;
  Broken runner(gan_config(folder));
  CHECK_THROWS(runner.train());
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.save_checkpoint("latest", /*save_best=*/true, /*last_step=*/false, /*force=*/true);
  CHECK(warnings == std::vector<std::string>{inexact});
}

TEST_CASE("errors: one process that cannot begin ends the others with a message", "[runner]") {
  const std::string where = GENERATE(std::string("directory"), std::string("callback"), std::string("host"));
  const Folder shared;
  const auto all = danling_test::run_ranks(2, [&](const dl::Group& group) {
    struct Thrower : dl::Callback {
      void on_run_begin(const dl::RunEvent&) override { throw std::runtime_error("no room"); }
    };
    const Folder folder;
    TinyConfig config(folder);
    if (where == "directory" && group.rank() == 0) {
      std::ofstream(folder.path() / "file") << "in the way";
      config.workspace_root = (folder.path() / "file").string();
    }
    config.steps = 3;
    RankRunner<> runner(config, group);
    if (where != "directory" && group.rank() == 0) {
      runner.add(Thrower());
    }
    try {
      if (where == "host") {
        runner.train_on_batch(pushed(0));
      } else {
        runner.train();
      }
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("done");
  });
  CHECK_THAT(all[0], ContainsSubstring(where == "directory" ? "in the way" : "no room") || ContainsSubstring("errno") ||
                         ContainsSubstring("directory"));
  CHECK_THAT(all[1], StartsWith("[group.collective] expected ") && ContainsSubstring("rank 0: "));
}

TEST_CASE("Callback: inference at the beginning of an evaluation keeps its metrics", "[runner]") {
  struct Inferring : dl::Callback {
    void on_evaluate_begin(const dl::SplitEvent& event) override {
      CHECK(static_cast<TinyRunner&>(event.runner).infer("val").size(0) == 20);
    }
  };
  const Folder folder;
  TinyRunner runner{TinyConfig(folder)};
  const dl::Result without = runner.evaluate_epoch("val");
  runner.add(Inferring());
  CHECK(runner.evaluate_epoch("val").text(9) == without.text(9));
}

TEST_CASE("errors: an evaluation inside of an evaluation is refused", "[runner]") {
  struct Nested : dl::Callback {
    std::string error;
    void on_evaluate_begin(const dl::SplitEvent& event) override {
      if (error.empty()) {
        error = "none";
        error = error_of<dl::StateError>([&] { static_cast<TinyRunner&>(event.runner).evaluate_epoch("val"); });
      }
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  auto& nested = runner.add(Nested());
  runner.train();
  CHECK(nested.error ==
        "[runner.evaluate] expected no evaluation in progress, got a call from a callback or step during one; call "
        "it from a training event");
  CHECK(runner.evaluate_epoch("val").number("loss") != nullptr);  // the one outside has ended
}

}  // namespace
}  // namespace runner_test
