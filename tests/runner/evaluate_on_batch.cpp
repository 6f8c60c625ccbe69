// evaluate_on_batch: evaluations and inference between batches that the program pushes.
#include "fixture.hpp"
#include "hosted.hpp"

namespace runner_test {
namespace {

TEST_CASE("evaluate_on_batch: evaluation and inference between batches change no bit of training", "[runner]") {
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
    CHECK(indices_of(runner.results()) == (more ? std::vector<std::int64_t>{4, 9, 12} : std::vector<std::int64_t>{12}));
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

TEST_CASE("evaluate_on_batch: inference between its batches does not change its averages", "[runner]") {
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

TEST_CASE("evaluate_on_batch: patience counts the evaluations of the score's split, each once", "[runner]") {
  const Folder folder;
  TinyConfig config = hosted(folder);
  config.patience = 3;
  config.optim.lr = 1e-30;  // scores stay equal
  HostedRunner runner(config);
  std::int64_t batches = 0;
  const auto update = [&] {
    for (int i = 0; i < 2; ++i) {
      runner.train_on_batch(pushed(batches++));
    }
  };
  const auto evaluate = [&](const std::string& split) {
    runner.evaluate_on_batch(make_points(10, 1000), split);
    runner.finish_evaluation();
    return runner.state_dict().at("loop").at("rounds_without_best").integer();
  };
  update();
  CHECK(evaluate("val") == 0);
  update();
  CHECK(evaluate("test") == 0);
  update();
  CHECK(evaluate("val") == 1);
  CHECK(evaluate("test") == 1);  // the second part of a row
  runner.finish_training();
  CHECK(runner.state_dict().at("loop").at("rounds_without_best").integer() == 1);
}

TEST_CASE("evaluate_on_batch: a runner can be destroyed during an evaluation", "[runner]") {
  const Folder folder;
  struct Open : dl::TorchRunner {  // its destructor does not call close(), as after an exception
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

TEST_CASE("evaluate_on_batch: evaluate() and train_on_batch() are errors before finish_evaluation()", "[runner]") {
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

TEST_CASE("train_on_batch: evaluate_interval evaluates the datasets, and is an error without any", "[runner]") {
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
  for (const auto& row : runner.results().rows()) {
    CHECK((row.result.find("val") != nullptr) == (row.index != 8));
  }
  CHECK(indices_of(runner.results()) == std::vector<std::int64_t>{3, 6, 8});
  CHECK(fs::exists(runner.workspace().checkpoint_dir() / "best.pth"));
}

TEST_CASE("finish_evaluation: within an accumulation window one warning says that the result cannot be the best",
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
            "runner.finish_evaluation: expected an evaluation between two updates, got one inside an accumulation "
            "window, where no checkpoint can be saved: it is not part of the results that the best is chosen from; "
            "evaluate after a batch that `updated`"});
}

TEST_CASE("finish_evaluation: a score_split that is not evaluated is a warning", "[runner]") {
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

}  // namespace
}  // namespace runner_test
