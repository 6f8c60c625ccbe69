// Requests of callbacks: to end training, save, evaluate and infer.
#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("Callback: a callback ends training, saves and requests an evaluation", "[runner]") {
  struct Asking : dl::Callback {
    std::string what;
    std::int64_t at = 0;
    std::vector<double>* losses = nullptr;
    std::string name() const override { return "asking"; }
    void on_step(const dl::StepEvent& event) override {
      if (event.runner.state().train.global_step != at) {
        return;
      }
      if (what == "end") {
        event.runner.end_training("enough");
      } else if (what == "save") {
        event.runner.save_checkpoint("asked", false, false, true);
      } else if (what == "evaluate") {
        event.runner.request_evaluation();
      }
    }
    void on_evaluate_end(const dl::SplitEvent& event) override { losses->push_back(*event.result.number("loss")); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.log_interval = 2;
  SECTION("by epochs") { config.epochs = 3; }
  SECTION("by steps") { config.steps = 21; }
  const auto run = [&](const std::string& what, std::vector<double>& losses) {
    const Folder own;
    TinyConfig options = config;
    options.workspace_root = own.path().string();
    auto runner = std::make_unique<TinyRunner>(options);
    Asking asking;
    asking.what = what;
    asking.at = 9;
    asking.losses = &losses;
    runner->add(std::move(asking));
    runner->train();
    CHECK(runner->close());
    CHECK(fs::exists(runner->workspace().checkpoint_dir() / "asked.pth") == (what == "save"));
    std::string metrics = metrics_of(runner->workspace().dir());
    return std::pair(metrics, runner->state().train.global_step);
  };
  std::vector<double> plain;
  const auto whole = run("", plain);
  CHECK(whole.second == 21);
  std::vector<double> same;
  CHECK(run("save", same).first == whole.first);
  CHECK(same == plain);
  std::vector<double> more;
  const auto [lines, steps] = run("evaluate", more);
  CHECK(steps == 21);
  CHECK(more.size() == plain.size() + 1);
  CHECK(more.back() == plain.back());
  // One more line; the others, with the averages of whole passes, do not change.
  CHECK(count(lines, "\n") == count(whole.first, "\n") + 1);
  std::istringstream in(whole.first);
  for (std::string line; std::getline(in, line);) {
    CHECK_THAT(lines, ContainsSubstring(line));
  }
  std::vector<double> fewer;
  CHECK(run("end", fewer).second == (config.epochs ? 14 : 9));
}

TEST_CASE("Callback: a requested evaluation that a stop interrupts is repeated after resume", "[runner]") {
  struct Asking : dl::Callback {
    std::string name() const override { return "asking"; }
    void on_step(const dl::StepEvent& event) override {
      if (event.runner.state().train.global_step == 3) {
        event.runner.request_evaluation();
      }
    }
  };
  const auto run = [](bool stops) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 2;
    if (stops) {
      TinyRunner runner(config);
      runner.add(Asking());
      train_until_evaluation(runner, 0);
      CHECK(runner.state().train.global_step == 3);
      config.auto_resume = true;
    }
    TinyRunner runner(config);
    runner.add(Asking());
    runner.train();
    CHECK(runner.close());
    return outcome_of(runner.workspace().dir());
  };
  check_same(run(true), run(false));
}

TEST_CASE("Callback: inference in on_step changes no bit of training", "[runner]") {
  struct Inferring : dl::Callback {
    TinyRunner* runner = nullptr;
    std::int64_t rows = 0;
    std::string name() const override { return "inferring"; }
    void on_step(const dl::StepEvent&) override {
      if (runner != nullptr) {
        rows += runner->infer("val").size(0);
      }
    }
  };
  const auto run = [](bool infers) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 2;
    config.log_interval = 2;
    TinyRunner runner(config);
    auto& callback = runner.add(Inferring());
    callback.runner = infers ? &runner : nullptr;
    runner.train();
    CHECK(callback.rows == (infers ? 14 * 20 : 0));
    CHECK(runner.close());
    return outcome_of(runner.workspace().dir());
  };
  check_same(run(false), run(true));
}

TEST_CASE("Callback: evaluation and inference in on_train_begin change no bit of training", "[runner]") {
  struct Early : dl::Callback {
    TinyRunner* runner = nullptr;
    std::string name() const override { return "early"; }
    void on_train_begin(const dl::SplitEvent&) override {
      if (runner != nullptr) {
        runner->infer("val");
        runner->evaluate();
      }
    }
  };
  const auto run = [](bool evaluates) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 2;
    TinyRunner runner(config);
    auto& callback = runner.add(Early());
    callback.runner = evaluates ? &runner : nullptr;
    runner.before_step = [](TinyRunner& self, std::int64_t) {
      CHECK(self.mode() == dl::RunnerMode::train);
      CHECK(self.model.module()->is_training());
    };
    runner.train();
    return dl::clone(runner.model.state_dict());
  };
  CHECK(dl::first_difference(run(true), run(false)) == "");
}

TEST_CASE("Callback: a checkpoint saved at any event resumes as the run that saved it", "[runner]") {
  struct Saving : dl::Callback {
    TinyRunner* runner = nullptr;
    std::string at;
    bool saved = false;
    std::string name() const override { return "saving"; }
    void save(const std::string& event) {
      if (runner != nullptr && event == at && runner->state().train.global_step >= 14 && !std::exchange(saved, true)) {
        runner->save_checkpoint("mine", false, false, true);
      }
    }
    void on_round_begin(const dl::RoundEvent&) override { save("round_begin"); }
    void on_train_begin(const dl::SplitEvent&) override { save("train_begin"); }
    void on_step(const dl::StepEvent&) override { save("step"); }
    void on_log(const dl::LogEvent&) override { save("log"); }
    void on_train_end(const dl::SplitEvent&) override { save("train_end"); }
    void on_evaluate_begin(const dl::SplitEvent&) override { save("evaluate_begin"); }
    void on_evaluate_end(const dl::SplitEvent&) override { save("evaluate_end"); }
    void on_result(const dl::ResultEvent&) override { save("result"); }
    void on_round_end(const dl::RoundEvent&) override { save("round_end"); }
  };
  const auto run = [](TinyConfig config, const Folder& folder, const std::string& event) {
    config.workspace_root = folder.path().string();
    TinyRunner runner(config);
    auto& callback = runner.add(Saving());
    callback.runner = &runner;
    callback.at = event;
    runner.train();
    CHECK(callback.saved == !event.empty());
    CHECK(runner.close());
    return outcome_of(runner.workspace().dir());
  };
  TinyConfig config;
  config.sched.type = "linear";
  config.sched.interval = "epoch";
  config.patience = 3;
  config.log_interval = 7;
  SECTION("by epochs") { config.epochs = 5; }
  SECTION("by steps") {
    config.steps = 35;
    config.evaluate_interval = 7;
    config.sched = {};
  }
  const Folder whole_folder;
  const Outcome whole = run(config, whole_folder, "");
  for (const std::string event :
       {"round_begin", "train_begin", "log", "train_end", "evaluate_begin", "evaluate_end", "result", "round_end"}) {
    INFO(event);
    const Folder folder;
    run(config, folder, event);
    const Folder other;
    TinyConfig resuming = config;
    resuming.resume = find_file(folder, "mine.pth").string();
    Outcome resumed = run(resuming, other, "");
    resumed.checkpoint["metrics_lines"] = whole.checkpoint.at("metrics_lines");  // an evaluation may be repeated
    CHECK(dl::first_difference(resumed.checkpoint, whole.checkpoint) == "");
    CHECK(resumed.results == whole.results);
  }
}

TEST_CASE("Callback: a run that a callback has ended is complete for later starts, until its boundary is raised",
          "[runner]") {
  struct Ending : dl::Callback {
    bool ends = true;
    void on_step(const dl::StepEvent& event) override {
      if (ends && event.runner.state().train.global_step == 5) {
        event.runner.end_training("enough is learned");
      }
    }
  };
  const bool by_steps = GENERATE(false, true);
  const bool stopped = GENERATE(false, true);  // after the request, before it takes effect (by epochs)
  const Folder folder;
  TinyConfig config(folder);
  by_steps ? config.steps = 28 : config.epochs = 4;
  config.auto_resume = true;
  const std::int64_t end = by_steps ? 5 : 7;
  {
    TinyRunner runner(config);
    runner.add(Ending());
    if (stopped && !by_steps) {
      train_until(runner, 5);
      CHECK(runner.state().train.global_step == 6);
    } else {
      runner.train();
      CHECK(runner.state().train.global_step == end);
    }
    CHECK(runner.close());
  }
  for (int start = 0; start < 2; ++start) {
    TinyRunner runner(config);
    runner.add(Ending()).ends = false;
    runner.train();
    CHECK(runner.state().train.global_step == end);
    CHECK(runner.results().rows().size() == 1);
    CHECK(runner.close());
  }
  by_steps ? config.steps = 35 : config.epochs = 5;
  TinyRunner runner(config);
  runner.add(Ending()).ends = false;
  runner.train();
  CHECK(runner.state().train.global_step == 35);
}

}  // namespace
}  // namespace runner_test
