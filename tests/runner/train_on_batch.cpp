// train_on_batch: training on batches that the program pushes.
#include "fixture.hpp"
#include "hosted.hpp"

namespace runner_test {
namespace {

TEST_CASE("train_on_batch: pushing batches trains bit for bit as train() does", "[runner]") {
  const Folder folder;
  TinyConfig config = hosted(folder);
  config.dataloader.shuffle = false;
  config.dataloader.splits["train"].shuffle = false;
  dl::State reference;
  std::string lines;
  {
    TinyRunner runner(config);
    runner.datasets.clear();
    runner.datasets["train"] = Points{make_points(48, 0), true};
    runner.train();
    reference = dl::clone(runner.state_dict());
    CHECK(runner.close());
    lines = metrics_of(runner.workspace().dir());
  }
  const Folder other;
  config = hosted(other);
  HostedRunner runner(config);
  bool done = false;
  for (std::int64_t i = 0; !done; ++i) {
    REQUIRE(i < 24);
    const auto report = runner.train_on_batch(pushed(i));
    CHECK(report.loss.defined());
    CHECK(report.updated == (i % 2 == 1));
    done = report.done;
  }
  runner.finish_training();
  for (const auto* part : {"model", "optimizer", "scheduler"}) {
    CHECK(dl::first_difference(reference.at(part), runner.state_dict().at(part)) == "");
  }
  CHECK(dl::first_difference(reference.at("state").at("rng"), runner.state_dict().at("state").at("rng")) == "");
  CHECK(runner.state().train.global_step == 12);
  CHECK(runner.close());
  const auto checkpoints = runner.workspace().checkpoint_dir();
  for (const auto* name : {"latest.pth", "model.pth", "ckpt-s000000000004.pth", "ckpt-s000000000008.pth"}) {
    CHECK(fs::exists(checkpoints / name));
  }
  CHECK_THAT(metrics_of(runner.workspace().dir()), ContainsSubstring("\"global_step\":4,\"iteration\":4"));
}

TEST_CASE("train_on_batch: a run that stops and resumes equals one that does not, bit for bit", "[runner]") {
  const Folder whole_folder;
  const auto run = [](const TinyConfig& config, std::int64_t from, std::int64_t stop) {
    HostedRunner runner(config);
    runner.initialize();
    bool done = false;
    for (std::int64_t i = from; !done; ++i) {
      if (i == stop) {
        runner.request_stop();
      }
      done = runner.train_on_batch(pushed(i)).done;
    }
    runner.finish_training();
    runner.close();
    return outcome_of(runner.workspace().dir());
  };
  const auto whole = run(hosted(whole_folder), 0, -1);
  const Folder folder;
  TinyConfig config = hosted(folder);
  CHECK_THROWS_AS(run(config, 0, 9), dl::Stopped);
  config.auto_resume = true;
  check_same(whole, run(config, 10, -1));
}

TEST_CASE("train_on_batch: without `steps` it trains until finish_training(), which closes an open window",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.accum_steps = 4;
  HostedRunner runner(config);
  for (std::int64_t i = 0; i < 6; ++i) {
    CHECK_FALSE(runner.train_on_batch(pushed(i)).done);
  }
  CHECK(runner.state().train.global_step == 1);
  runner.finish_training();
  CHECK(runner.state().train.global_step == 2);
  CHECK(runner.results().latest()->index == 2);
  CHECK(runner.close());
  CHECK(step_of(runner.workspace().checkpoint_dir() / "latest.pth") == 2);
}

TEST_CASE("train_on_batch: callbacks receive its steps and can end training", "[runner]") {
  struct Ender : dl::Callback {
    std::int64_t steps = 0;
    void on_step(const dl::StepEvent& event) override {
      if (++steps == 3) {
        event.runner.end_training("enough");
      }
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  HostedRunner runner(config);
  auto& ender = runner.add(Ender());
  CHECK_FALSE(runner.train_on_batch(pushed(0)).done);
  CHECK_FALSE(runner.train_on_batch(pushed(1)).done);
  CHECK(runner.train_on_batch(pushed(2)).done);
  CHECK(ender.steps == 3);
}

TEST_CASE("train_on_batch: after load_checkpoint training continues from the checkpoint", "[runner]") {
  const auto run = [](bool rolls_back) {
    const Folder folder;
    HostedRunner runner(hosted(folder));
    for (int batch = 0; batch < 4; ++batch) {
      runner.train_on_batch(pushed(batch));
    }
    if (rolls_back) {
      const dl::State before = dl::clone(runner.state_dict());
      runner.train_on_batch(pushed(7));
      runner.evaluate_on_batch(pushed(8));
      runner.load_checkpoint(before);
    }
    runner.train_on_batch(pushed(4));
    runner.train_on_batch(pushed(5));
    return dl::clone(runner.state_dict());
  };
  dl::State rolled_back = run(true);
  dl::State straight = run(false);
  for (const auto* key : {"runner", "metrics_lines"}) {  // folders and lines of a log differ
    rolled_back.map().erase(key);
    straight.map().erase(key);
  }
  CHECK(dl::first_difference(rolled_back, straight) == "");
}

TEST_CASE("train_on_batch: load_checkpoint within a window discards the window", "[runner]") {
  const Folder folder;
  HostedRunner runner(hosted(folder));
  runner.train_on_batch(pushed(0));
  runner.train_on_batch(pushed(1));
  const dl::State before = dl::clone(runner.state_dict());
  runner.train_on_batch(pushed(2));
  runner.load_checkpoint(before);
  runner.save_checkpoint("again", false, false, true);
  runner.wait_for_checkpoints();
  CHECK(fs::exists(runner.workspace().checkpoint_dir() / "again.pth"));
}

TEST_CASE("train_on_batch: a batch that throws leaves no gradient", "[runner]") {
  struct Failing : HostedRunner {
    using HostedRunner::HostedRunner;
    bool fails = false;
    dl::StepOutput train_step(dl::Batch& batch) override {
      auto output = HostedRunner::train_step(batch);
      if (fails) {
        throw std::runtime_error("a bad batch");
      }
      return output;
    }
  };
  const auto run = [](bool with_failure) {
    const Folder folder;
    TinyConfig config(folder);
    config.dropout = 0;
    config.accum_steps = 2;
    config.optim.type = "sgd";
    Failing runner(config);
    runner.train_on_batch(pushed(0));
    runner.train_on_batch(pushed(1));
    if (with_failure) {
      runner.fails = true;
      CHECK_THROWS(runner.train_on_batch(pushed(2)));
      runner.fails = false;
    }
    runner.train_on_batch(pushed(3), "train", /*last=*/true);
    return dl::clone(runner.model.state_dict());
  };
  CHECK(dl::first_difference(run(true), run(false)) == "");
}

TEST_CASE("train_on_batch: a run whose steps are done trains no further, also after a restart", "[runner]") {
  const Folder folder;
  TinyConfig config = hosted(folder);
  config.steps = 6;
  config.auto_resume = true;
  const auto run = [&] {
    HostedRunner runner(config);
    int batches = 0;
    while (!runner.train_on_batch(pushed(batches)).done) {
      REQUIRE(++batches < 20);
    }
    CHECK(runner.train_on_batch(pushed(0)).done);  // a loop that ignores `done`
    CHECK_FALSE(runner.train_on_batch(pushed(0)).updated);
    CHECK(runner.finish_training().rows().size() == 1);
    CHECK(runner.state().train.global_step == 6);
    CHECK(runner.close());
    const fs::path dir = runner.workspace().dir();
    return std::pair(batches, std::pair(read_file(dir / "checkpoints" / "model.pth"), outcome_of(dir)));
  };
  const auto first = run();
  CHECK(first.first == 11);
  for (int start = 0; start < 2; ++start) {
    const auto again = run();
    CHECK(again.first == 0);
    CHECK(again.second.first == first.second.first);
    check_same(again.second.second, first.second.second);
  }
}

TEST_CASE("train_on_batch: a run that stops at its last step is finished by the next start", "[runner]") {
  const auto run = [](bool stops) {
    const Folder folder;
    TinyConfig config = hosted(folder);
    config.steps = 6;
    config.auto_resume = true;
    bool stopped = false;
    const auto start = [&] {
      HostedRunner runner(config);
      try {
        for (std::int64_t done = runner.state().train.micro_step;; ++done) {
          if (stops && done == 11) {
            runner.request_stop();
          }
          if (runner.train_on_batch(pushed(done)).done) {
            break;
          }
        }
      } catch (const dl::Stopped&) {
        stopped = true;
        return fs::path();
      }
      runner.finish_training();
      CHECK(runner.close());
      return runner.workspace().dir();
    };
    fs::path dir = start();
    if (stops) {
      CHECK(stopped);
      stops = false;
      dir = start();
    }
    CHECK(fs::exists(dir / "checkpoints" / "model.pth"));
    return outcome_of(dir);
  };
  check_same(run(true), run(false));
}

TEST_CASE("train_on_batch: without `steps` the log has the disk space of each checkpoint", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.checkpoint.interval = 100;
  HostedRunner runner(config);
  runner.train_on_batch(pushed(0));
  runner.finish_training();
  CHECK(runner.close());
  CHECK_THAT(logs_of(runner.workspace().dir()), ContainsSubstring("checkpoints: a state every 100 steps, of about 2") &&
                                                    ContainsSubstring("KiB, all kept; "));
}

TEST_CASE("train_on_batch: an empty batch counts in no average, for any criterion", "[runner]") {
  const bool is_function = GENERATE(false, true);
  const auto loss_with = [&](bool empty) {
    const Folder folder;
    TinyConfig config = hosted(folder);
    config.accum_steps = 1;
    config.dropout = 0;
    HostedRunner runner(config);
    runner.metrics = nullptr;
    if (is_function) {
      runner.criterion = [](const at::Tensor& a, const at::Tensor& b) {
        return torch::nn::functional::cross_entropy(a, b);
      };
    }
    for (std::int64_t i = 0; i < 4; ++i) {
      runner.train_on_batch(pushed(i));
      if (empty && i == 1) {
        runner.train_on_batch(make_points(0, 0));
      }
    }
    return runner.finish_training().latest()->result.at("train.loss");
  };
  const double expected = loss_with(false);
  CHECK(std::isfinite(expected));
  CHECK(loss_with(true) == expected);
}

}  // namespace
}  // namespace runner_test
