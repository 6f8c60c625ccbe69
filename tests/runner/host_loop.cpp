#include <functional>
#include <thread>

#include "fixture.hpp"

namespace runner_test {
namespace {

using Catch::Matchers::Contains;
using danling_test::error_of;

/// A runner without data: its host makes the batches.
class HostedRunner : public dl::TorchRunner {
 public:
  explicit HostedRunner(const TinyConfig& config) : TorchRunner(config) {
    model = make_tiny_net(config);
    criterion = torch::nn::CrossEntropyLoss();
    using namespace dl::metrics;
    metrics = multiclass_metrics(3, {.mode = Mode::stream}, {multiclass_accuracy(3, {.average = Average::micro})});
  }
  ~HostedRunner() override { close(); }
};

TinyConfig hosted(const Folder& folder) {
  TinyConfig config(folder);
  config.steps = 12;
  config.accum_steps = 2;
  config.log_interval = 3;
  config.checkpoint.interval = 4;
  config.sched.type = "cosine";
  config.max_grad_norm = 0.5;
  return config;
}

/// The training batches of an epoch without shuffling, so that train() sees the same.
dl::Batch pushed(std::int64_t index) { return make_points(8, 8 * (index % 6)); }

class Ordered : public TinyRunner {
 public:
  explicit Ordered(const TinyConfig& config) : TinyRunner(config) {
    datasets["train"] = Points{make_points(48, 0), true};
  }
};

TEST_CASE("train_on_batch: pushing batches trains bit for bit as train() does", "[runner]") {
  const Folder folder;
  TinyConfig config = hosted(folder);
  config.dataloader.shuffle = false;
  config.dataloader.splits["train"].shuffle = false;
  dl::State reference;
  std::string lines;
  {
    Ordered runner(config);
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
  CHECK_THAT(metrics_of(runner.workspace().dir()), Contains("\"global_step\":4,\"iteration\":4"));
}

TEST_CASE("train_on_batch: a stopped host goes on bit for bit where it was", "[runner]") {
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

TEST_CASE("train_on_batch: evaluation and inference between batches change no bit of training", "[runner]") {
  const Folder plain_folder;
  const Folder folder;
  const auto run = [](const TinyConfig& config, bool more) {
    HostedRunner runner(config);
    bool done = false;
    for (std::int64_t i = 0; !done; ++i) {
      done = runner.train_on_batch(pushed(i)).done;
      if (more && i % 5 == 2) {
        CHECK(runner.infer_on_batch(make_points(4, 500)).size(0) == 4);
        for (int part = 0; part < 2; ++part) {
          runner.evaluate_on_batch(make_points(10, 1000 + 10 * part));
        }
        CHECK(runner.finish_evaluation().number("loss") != nullptr);
      }
    }
    runner.finish_training();
    dl::State out = dl::clone(runner.state_dict());
    std::vector<std::int64_t> rows;
    for (const auto& row : runner.results().rows()) {
      rows.push_back(row.index);
    }
    CHECK(rows == (more ? std::vector<std::int64_t>{4, 9, 12} : std::vector<std::int64_t>{12}));
    CHECK(runner.close());
    CHECK(fs::exists(runner.workspace().checkpoint_dir() / "best.pth") == more);
    std::string last = metrics_of(runner.workspace().dir());
    last = last.substr(last.rfind('\n', last.size() - 2) + 1);
    return std::pair(out, last);
  };
  TinyConfig config = hosted(plain_folder);
  const auto plain = run(config, false);
  config.workspace_root = folder.path().string();
  const auto more = run(config, true);
  for (const auto* part : {"model", "optimizer", "scheduler", "state"}) {
    CHECK(dl::first_difference(plain.first.at(part), more.first.at(part)) == "");
  }
  CHECK(plain.second == more.second);  // the averages of the whole pass
}

TEST_CASE("train_on_batch: without steps it goes on until it is finished, and an open window is closed", "[runner]") {
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
  CHECK(dl::load_file(runner.workspace().checkpoint_dir() / "latest.pth")
            .at("state")
            .at("train")
            .at("global_step")
            .integer() == 2);
}

TEST_CASE("train_on_batch: callbacks hear the host's steps and may end its training", "[runner]") {
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

TEST_CASE("train_on_batch: calls in a wrong order are errors that say the right one", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 5;
  HostedRunner runner(config);
  CHECK(error_of<dl::StateError>([&] { runner.finish_training(); }) ==
        "[runner.finish_training] expected a call after train_on_batch, got one without");
  CHECK(error_of<dl::StateError>([&] { runner.finish_evaluation(); }) ==
        "[runner.finish_evaluation] expected a call after evaluate_on_batch, got one without");
  runner.train_on_batch(pushed(0));
  CHECK(error_of<dl::ConfigError>([&] { runner.train_on_batch(pushed(1), "other"); }) ==
        "[runner.train_on_batch] expected batches of split 'train' until finish_training(), got one of 'other'");
  runner.evaluate_on_batch(make_points(4, 1000));
  CHECK(error_of<dl::StateError>([&] { runner.train_on_batch(pushed(1)); }) ==
        "[runner.train_on_batch] expected finish_evaluation() after evaluate_on_batch, got a training batch");
  CHECK(error_of<dl::ConfigError>([&] { runner.evaluate_on_batch(make_points(4, 1000), "test"); }) ==
        "[runner.evaluate_on_batch] expected batches of split 'val' until finish_evaluation(), got one of 'test'");
  runner.finish_evaluation();
  runner.train_on_batch(pushed(1));

  TinyConfig epochs(folder);
  epochs.epochs = 3;
  epochs.hidden = 4;
  HostedRunner by_epochs(epochs);
  CHECK(error_of<dl::ConfigError>([&] { by_epochs.train_on_batch(pushed(0)); }) ==
        "[runner.train_on_batch] expected `steps`, or neither, where the program brings the batches, got epochs=3");

  struct Nested : HostedRunner {
    using HostedRunner::HostedRunner;
    dl::StepOutput train_step(dl::Batch& batch) override {
      train_on_batch(pushed(0));
      return HostedRunner::train_step(batch);
    }
  };
  TinyConfig other(folder);
  other.hidden = 5;
  Nested nested(other);
  CHECK_THAT(error_of<dl::StateError>([&] { nested.train_on_batch(pushed(0)); }),
             Contains("[runner.train_on_batch] expected a call after train() or train_on_batch() has returned or "
                      "thrown, got one inside of it"));
}

TEST_CASE("train_on_batch: what would end a training from inside of it is refused", "[runner]") {
  struct Inside : dl::Callback {
    std::function<void()> call;
    std::string name() const override { return "inside"; }
    void on_step(const dl::StepEvent&) override { call(); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 5;
  HostedRunner runner(config);
  Inside& inside = runner.add(Inside());
  const auto refused = [&](std::function<void()> call, const std::string& operation) {
    bool called = false;
    inside.call = [&] {
      called = true;
      CHECK(error_of<dl::StateError>(call) ==
            "[" + operation + "] expected a call after train() or train_on_batch() has returned or thrown, got one " +
                "inside of it");
    };
    runner.train_on_batch(pushed(0));
    CHECK(called);
  };
  refused([&] { runner.train(); }, "runner.train");
  refused([&] { runner.train_on_batch(pushed(1)); }, "runner.train_on_batch");
  refused([&] { runner.evaluate_on_batch(pushed(1)); }, "runner.evaluate_on_batch");
  refused([&] { runner.finish_training(); }, "runner.finish_training");
  refused([&] { runner.load_checkpoint(runner.state_dict()); }, "runner.load_checkpoint");
}

TEST_CASE("train_on_batch: a callback of the run's beginning that begins another is refused", "[runner]") {
  struct Eager : dl::Callback {
    HostedRunner* runner = nullptr;
    std::string name() const override { return "eager"; }
    void on_run_begin(const dl::RunEvent&) override { runner->train_on_batch(pushed(0)); }
  };
  const Folder folder;
  HostedRunner runner(hosted(folder));
  runner.add(Eager()).runner = &runner;
  CHECK_THAT(error_of<dl::Error>([&] { runner.train_on_batch(pushed(0)); }),
             Contains("[runner.train_on_batch] expected a call after train() or train_on_batch() has returned"));
}

TEST_CASE("train_on_batch: after a checkpoint is loaded the next batch begins where it does", "[runner]") {
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

TEST_CASE("evaluate_on_batch: inference between its batches leaves its averages alone", "[runner]") {
  const Folder folder;
  HostedRunner runner(hosted(folder));
  runner.train_on_batch(pushed(0));
  const auto evaluate = [&](bool infers) {
    for (int part = 0; part < 3; ++part) {
      runner.evaluate_on_batch(make_points(10, 1000 + 10 * part));
      if (infers) {
        runner.infer_on_batch(make_points(5, 0));
      }
    }
    return runner.finish_evaluation().text(9);
  };
  CHECK(evaluate(true) == evaluate(false));
}

TEST_CASE("evaluate_on_batch: other evaluations and trainings wait for its end", "[runner]") {
  const Folder folder;
  HostedRunner runner(hosted(folder));
  runner.datasets["val"] = Points{make_points(20, 1000), false};
  runner.evaluate_on_batch(make_points(10, 1000));
  CHECK(runner.infer("val").size(0) == 20);
  CHECK(error_of<dl::StateError>([&] { runner.evaluate(); }) ==
        "[runner.evaluate] expected finish_evaluation() after evaluate_on_batch, got another evaluation");
  CHECK(error_of<dl::StateError>([&] { runner.train_on_batch(pushed(0)); }) ==
        "[runner.train_on_batch] expected finish_evaluation() after evaluate_on_batch, got a training batch");
  runner.evaluate_on_batch(make_points(10, 1010));
  const std::string parts = runner.finish_evaluation().text(4);
  runner.evaluate_on_batch(make_points(20, 1000));
  CHECK(runner.finish_evaluation().text(4) == parts);
}

TEST_CASE("evaluate_on_batch: a runner may end with an evaluation open in the middle of training", "[runner]") {
  const Folder folder;
  struct Open : dl::TorchRunner {  // without close(), as where an exception leaves a program
    explicit Open(const TinyConfig& config) : TorchRunner(config) {
      model = make_tiny_net(config);
      criterion = torch::nn::CrossEntropyLoss();
    }
  };
  Open runner(hosted(folder));
  runner.train_on_batch(pushed(0));
  runner.evaluate_on_batch(pushed(1));
  CHECK(runner.mode() == dl::RunnerMode::evaluate);
}

TEST_CASE("train_on_batch: a batch that throws leaves no gradient for the next ones", "[runner]") {
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
    } else {
      runner.train_on_batch(pushed(3), "train", /*last=*/true);
      return dl::clone(runner.model.state_dict());
    }
    runner.train_on_batch(pushed(3), "train", /*last=*/true);
    return dl::clone(runner.model.state_dict());
  };
  CHECK(dl::first_difference(run(true), run(false)) == "");
}

TEST_CASE("TorchRunner: several runners on several threads give the results of running alone", "[runner]") {
  class Hosted : public TinyRunner {
   public:
    Hosted(const TinyConfig& config, double scale) : TinyRunner(config) {
      const at::NoGradGuard no_grad;
      double value = scale;
      for (auto& [name, parameter] : model.named_parameters()) {
        parameter.copy_(torch::linspace(-value, value, parameter.numel()).view_as(parameter));
        value *= 0.9;
      }
    }
  };
  const auto train = [](double scale) {
    const Folder folder;
    TinyConfig config(folder);
    config.dropout = 0;
    config.epochs = 3;
    config.num_threads = 1;
    Hosted runner(config, scale);
    return runner.train().latest()->result.text(9);
  };
  const std::vector<double> scales = {0.5, 0.5, 1.0};  // two of equal config in all
  std::vector<std::string> alone;
  for (const double scale : scales) {
    alone.push_back(train(scale));
  }
  std::vector<std::string> together(scales.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    threads.emplace_back([&, i] { together[i] = train(scales[i]); });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  CHECK(together == alone);
}

TEST_CASE("train_on_batch: a run whose steps are done trains no further, also when it is started again", "[runner]") {
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
    CHECK(runner.train_on_batch(pushed(0)).done);  // of a loop that does not look
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

TEST_CASE("train_on_batch: a run that is stopped at its last step is finished by the next start", "[runner]") {
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

TEST_CASE("evaluate_on_batch: an evaluation that draws random numbers changes no bit of training", "[runner]") {
  struct Noisy : HostedRunner {
    using HostedRunner::HostedRunner;
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      batch.input += torch::randn_like(batch.input);
      return HostedRunner::evaluate_step(batch);
    }
  };
  const auto run = [](bool evaluates) {
    const Folder folder;
    Noisy runner(hosted(folder));
    for (int batch = 0; batch < 6; ++batch) {
      runner.train_on_batch(pushed(batch));
      if (evaluates) {
        runner.evaluate_on_batch(make_points(10, 1000));
        runner.finish_evaluation();
      }
    }
    return dl::clone(runner.model.state_dict());
  };
  CHECK(dl::first_difference(run(true), run(false)) == "");
}

TEST_CASE("finish_evaluation: inside of an accumulation window it is said once that it cannot be the best",
          "[runner]") {
  const Folder folder;
  HostedRunner runner(hosted(folder));
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  for (int batch = 0; batch < 4; ++batch) {
    runner.train_on_batch(pushed(batch));
    runner.evaluate_on_batch(make_points(10, 1000));
    CHECK(runner.finish_evaluation().number("loss") != nullptr);
  }
  CHECK(runner.results().rows().size() == 2);
  CHECK(warnings ==
        std::vector<std::string>{
            "runner.finish_evaluation: expected an evaluation between two updates, got one inside of an accumulation "
            "window, where no checkpoint can be saved: it is not part of the results that the best is chosen from; "
            "evaluate after a batch that `updated`"});
}

TEST_CASE("train_on_batch: a checkpoint that is loaded inside of a window leaves nothing of the window", "[runner]") {
  const Folder folder;
  HostedRunner runner(hosted(folder));
  runner.train_on_batch(pushed(0));
  runner.train_on_batch(pushed(1));
  const dl::State before = dl::clone(runner.state_dict());
  runner.train_on_batch(pushed(2));
  runner.load_checkpoint(before);
  runner.save_checkpoint("again", false, false, true);
  runner.settle_checkpoints();
  CHECK(fs::exists(runner.workspace().checkpoint_dir() / "again.pth"));
}

TEST_CASE("train_on_batch: without an end the disk that each checkpoint takes is logged", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.checkpoint.interval = 100;
  HostedRunner runner(config);
  runner.train_on_batch(pushed(0));
  runner.finish_training();
  CHECK(runner.close());
  CHECK_THAT(logs_of(runner.workspace().dir()),
             Catch::Matchers::Contains("checkpoints: a state every 100 steps, of about 2") &&
                 Catch::Matchers::Contains("KiB, all kept; "));
}

TEST_CASE("train_on_batch: evaluate_interval evaluates the datasets that there are, and is refused without",
          "[runner]") {
  const Folder folder;
  TinyConfig config = hosted(folder);
  config.steps = 8;
  config.evaluate_interval = 3;
  HostedRunner refused(config);
  CHECK(error_of<dl::ConfigError>([&] { refused.train_on_batch(pushed(0)); }) ==
        "[runner.train_on_batch] expected a dataset to evaluate for evaluate_interval, got none; set one, or evaluate "
        "by evaluate_on_batch");
  config.hidden = 9;
  HostedRunner runner(config);
  runner.datasets["val"] = Points{make_points(20, 1000), false};
  while (!runner.train_on_batch(pushed(runner.state().train.micro_step)).done) {
  }
  runner.finish_training();
  std::vector<std::int64_t> rows;
  for (const auto& row : runner.results().rows()) {
    rows.push_back(row.index);
    CHECK((row.result.find("val") != nullptr) == (row.index != 8));
  }
  CHECK(rows == std::vector<std::int64_t>{3, 6, 8});
  CHECK(fs::exists(runner.workspace().checkpoint_dir() / "best.pth"));
}

TEST_CASE("finish_training: one that throws may be called again and counts nothing twice", "[runner]") {
  struct Failing : dl::Callback {
    bool fails = true;
    std::string name() const override { return "failing"; }
    void on_save(const dl::SaveEvent& event) override {
      if (event.last && std::exchange(fails, false)) {
        throw std::runtime_error("no room");
      }
    }
  };
  const auto run = [](bool fails) {
    const Folder folder;
    HostedRunner runner(hosted(folder));
    runner.add(Failing()).fails = fails;
    runner.train_on_batch(pushed(0));
    runner.train_on_batch(pushed(1));
    if (fails) {
      CHECK_THROWS(runner.finish_training());
    }
    CHECK(runner.finish_training().rows().size() == 1);
    CHECK(runner.close());
    return outcome_of(runner.workspace().dir());
  };
  check_same(run(true), run(false));
}

TEST_CASE("finish_evaluation: a score_split that is never evaluated is warned of", "[runner]") {
  const Folder folder;
  TinyConfig config = hosted(folder);
  config.accum_steps = 1;
  config.score_split = "vla";
  HostedRunner runner(config);
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  for (int batch = 0; batch < 2; ++batch) {
    runner.train_on_batch(pushed(batch));
    runner.evaluate_on_batch(make_points(10, 1000));
    runner.finish_evaluation();
  }
  CHECK(warnings ==
        std::vector<std::string>{"runner.finish_evaluation: expected an evaluation of score_split 'vla', by which the "
                                 "best is chosen, got one of 'val'"});
}

TEST_CASE("finish_training: a loss that is not finite is the error again, and nothing is exported", "[runner]") {
  struct Broken : HostedRunner {
    using HostedRunner::HostedRunner;
    dl::StepOutput train_step(dl::Batch& batch) override {
      auto output = HostedRunner::train_step(batch);
      output.loss = output.loss * std::numeric_limits<double>::quiet_NaN();
      return output;
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.on_nonfinite = "stop";
  config.log_interval = 100;
  Broken runner(config);
  runner.train_on_batch(pushed(0));
  for (int call = 0; call < 2; ++call) {
    CHECK_THAT(error_of<dl::NonFiniteError>([&] { runner.finish_training(); }),
               Contains("[runner.loss] expected a finite loss, got nan in split 'train'"));
  }
  CHECK_FALSE(fs::exists(runner.workspace().checkpoint_dir() / "model.pth"));
}

}  // namespace
}  // namespace runner_test
