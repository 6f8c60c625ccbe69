#include <danling/runner/early_stopping.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

using Catch::Matchers::Contains;

/// Writes down what it hears.
class Witness : public dl::Callback {
 public:
  explicit Witness(std::vector<std::string>& heard, std::string called = "witness")
      : heard_(heard), called_(std::move(called)) {}
  std::string name() const override { return called_; }
  void on_run_begin(const dl::RunEvent&) override { say("run begin"); }
  void on_run_end(const dl::RunEvent&) override { say("run end"); }
  void on_round_begin(const dl::RoundEvent& event) override { say(dl::concat("round begin ", event.index)); }
  void on_round_end(const dl::RoundEvent& event) override { say(dl::concat("round end ", event.index)); }
  void on_result(const dl::ResultEvent& event) override { say(dl::concat("result ", event.index)); }
  void on_train_begin(const dl::SplitEvent& event) override { say(dl::concat("train begin ", event.total)); }
  void on_train_end(const dl::SplitEvent& event) override {
    CHECK(event.result.number("loss") != nullptr);
    say("train end");
  }
  void on_step(const dl::StepEvent& event) override {
    CHECK(event.loss.defined());
    CHECK(event.samples > 0);
    say(dl::concat("step ", event.iteration, event.closes ? " closes" : "", event.updated ? " updated" : ""));
  }
  void on_log(const dl::LogEvent& event) override {
    say(dl::concat("log ", event.split, event.iteration ? dl::concat(" ", *event.iteration) : std::string(" end")));
  }
  void on_evaluate_begin(const dl::SplitEvent& event) override { say(dl::concat("evaluate begin ", event.split)); }
  void on_evaluate_end(const dl::SplitEvent&) override { say("evaluate end"); }
  void on_save(const dl::SaveEvent& event) override {
    say(dl::concat("save ", event.name, event.best ? " best" : "", event.last ? " last" : ""));
  }
  void on_restore(const dl::RestoreEvent& event) override {
    say(dl::concat("restore ", event.path.filename().string()));
  }
  void on_stop(const dl::StopEvent& event) override { say(dl::concat("stop ", event.signal)); }
  void on_exception(const dl::ExceptionEvent& event) override { say(dl::concat("exception ", event.error.what())); }

 private:
  void say(const std::string& what) { heard_.push_back(called_ == "witness" ? what : dl::concat(called_, ": ", what)); }

  std::vector<std::string>& heard_;
  std::string called_;
};

TEST_CASE("Callback: a run by epochs sends its events in the stated order", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.records = 20;
  config.accum_steps = 2;
  config.log_interval = 2;
  std::vector<std::string> heard;
  TinyRunner runner(config);
  runner.add(Witness(heard));
  runner.train();
  CHECK(heard == std::vector<std::string>{
                     "run begin", "round begin 0", "train begin 3", "step 1", "step 2 closes updated",
                     "step 3 closes updated", "log train 3", "log train end", "train end", "evaluate begin val",
                     "log val end", "evaluate end", "result 0", "round end 0", "save latest best last", "run end"});
  heard.clear();
  runner.evaluate();
  CHECK(heard == std::vector<std::string>{"evaluate begin val", "log val end", "evaluate end"});
}

TEST_CASE("Callback: a run by steps sends a result for each evaluation", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 5;
  config.log_interval = 0;
  config.checkpoint.interval = 0;
  std::vector<std::string> heard;
  std::vector<std::string> expected = {"result 5"};
  SECTION("at the end") {}
  SECTION("by evaluate_interval") {
    config.evaluate_interval = 2;
    expected = {"result 2", "result 4", "result 5"};
  }
  TinyRunner runner(config);
  runner.add(Witness(heard));
  runner.train();
  std::erase_if(heard, [](const auto& text) { return !text.starts_with("result"); });
  CHECK(heard == expected);
}

TEST_CASE("Callback: stops, restores and exceptions are told", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  std::vector<std::string> heard;
  {
    TinyRunner runner(config);
    runner.add(Witness(heard));
    runner.before_step = [](TinyRunner& self, std::int64_t done) {
      if (done == 2) {
        self.request_stop();
      }
    };
    CHECK_THROWS_AS(runner.train(), dl::Stopped);
    REQUIRE(heard.size() > 2);
    CHECK(std::vector(heard.end() - 2, heard.end()) == std::vector<std::string>{"save latest", "stop 15"});
  }
  heard.clear();
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.add(Witness(heard));
  runner.before_step = [](TinyRunner&, std::int64_t) { throw std::runtime_error("a bad batch"); };
  CHECK_THROWS(runner.train());
  CHECK(heard.front() == "restore latest.pth");
  CHECK_THAT(heard.back(), Contains("exception ") && Contains("a bad batch"));
}

TEST_CASE("Callback: one whose state fails is named, when it is saved and when it is restored", "[runner]") {
  struct Stateful : dl::Callback {
    explicit Stateful(bool is_broken) : broken(is_broken) {}
    bool broken;
    dl::State state_dict() const override {
      if (broken) {
        throw std::runtime_error("a lost buffer");
      }
      return 3;
    }
    void load_state_dict(const dl::State& state) override { state.at("count"); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  {
    TinyRunner runner(config);
    runner.add(Stateful(true));
    CHECK(danling_test::error_of<dl::Error>([&] { runner.state_dict(); }) ==
          "[runner.callback] expected 'Stateful' to give its state, got an exception: a lost buffer");
  }
  dl::State saved;
  {
    TinyRunner runner(config);
    runner.add(Stateful(false));
    runner.initialize();
    saved = runner.state_dict();
  }
  TinyRunner runner(config);
  runner.add(Stateful(false));
  runner.initialize();
  CHECK_THAT(danling_test::error_of<dl::Error>([&] { runner.load_checkpoint(saved); }),
             Contains("[runner.callback] expected 'Stateful' to take the state of the checkpoint, got an exception: "));
}

TEST_CASE("Callback: one that adds others while it is called leaves the list whole, and they hear the same event",
          "[runner]") {
  struct Counter : dl::Callback {
    Counter(std::string of, int& count) : own(std::move(of)), begun(&count) {}
    std::string own;
    int* begun;
    std::string name() const override { return own; }
    void on_run_begin(const dl::RunEvent&) override { ++*begun; }
  };
  struct Adder : dl::Callback {
    explicit Adder(int& count) : begun(&count) {}
    int* begun;
    void on_run_begin(const dl::RunEvent& event) override {
      for (int i = 0; i < 16; ++i) {
        event.runner.add(Counter(std::to_string(i), *begun));
      }
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  int begun = 0;
  TinyRunner runner(config);
  runner.add(Adder(begun));
  runner.add(Counter("first", begun));
  runner.train();
  CHECK(begun == 17);
}

TEST_CASE("Callback: they are called in the order in which they were added, and one that throws is named", "[runner]") {
  struct Thrower : dl::Callback {
    void on_round_end(const dl::RoundEvent&) override { throw std::runtime_error("no room"); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  std::vector<std::string> heard;
  TinyRunner runner(config);
  runner.add(Witness(heard, "b"));
  runner.add(Witness(heard, "a"));
  runner.add(Thrower());
  CHECK(danling_test::error_of<dl::Error>([&] { runner.train(); }) ==
        "[runner.callback] expected 'Thrower' to return, got an exception: no room");
  REQUIRE(heard.size() > 4);
  CHECK(heard[0] == "b: run begin");
  CHECK(heard[1] == "a: run begin");
  CHECK(danling_test::error_of<dl::ConfigError>([&] { runner.add(Thrower()); }) ==
        "[runner.add] expected callbacks of different names, got two 'Thrower'; override name()");
}

TEST_CASE("Callback: only those that override on_step are called at steps", "[runner]") {
  struct Quiet : dl::Callback {};
  struct Loud : dl::Callback {
    void on_step(const dl::StepEvent&) override {}
  };
  struct Louder : Loud {};
  class Hidden : public dl::Callback {
    void on_step(const dl::StepEvent&) override {}
  };
  CHECK_FALSE(dl::detail::listens_to_steps<Quiet>());
  CHECK(dl::detail::listens_to_steps<Loud>());
  CHECK(dl::detail::listens_to_steps<Louder>());
  CHECK(dl::detail::listens_to_steps<Hidden>());
}

/// Keeps an average of the weights, evaluates with it and saves it: what a program writes of its own.
class MovingAverage : public dl::Callback {
 public:
  explicit MovingAverage(TinyRunner& runner) : runner_(runner) {}
  void on_step(const dl::StepEvent& event) override {
    if (!event.updated) {
      return;
    }
    ++updates;
    const at::NoGradGuard no_grad;
    for (const auto& [name, value] : runner_.model.named_parameters()) {
      auto& average = averages_[name];
      average = average.defined() ? average.lerp(value, 0.1) : value.detach().clone();
    }
  }
  dl::State state_dict() const override {
    dl::State out;
    out["updates"] = updates;
    for (const auto& [name, value] : averages_) {
      out["averages"][name] = value;
    }
    return out;
  }
  void load_state_dict(const dl::State& state) override {
    updates = state.at("updates").integer();
    for (const auto& entry : state.at("averages").map()) {
      averages_[entry.key.string()] = entry.value.tensor().clone();
    }
  }
  std::int64_t updates = 0;

 private:
  TinyRunner& runner_;
  std::map<std::string, at::Tensor> averages_;
};

struct Replay {
  std::vector<std::int64_t> seen;
  dl::State state_dict() const { return dl::State::List(seen.begin(), seen.end()); }
  void load_state_dict(const dl::State& state) {
    seen.clear();
    for (const auto& item : state.list()) {
      seen.push_back(item.integer());
    }
  }
};

class TrackingRunner : public TinyRunner {
 public:
  explicit TrackingRunner(const TinyConfig& config) : TinyRunner(config), average(add(MovingAverage(*this))) {
    track("replay", replay);
    before_step = [this](TinyRunner& self, std::int64_t done) {
      replay.seen.push_back(self.state().train.global_step);
      if (done == stop_at) {
        request_stop();
      }
    };
  }
  Replay replay;
  MovingAverage& average;
  std::int64_t stop_at = -1;
};

TEST_CASE("Callback: its state, and what a program tracks, are saved and resumed with the run", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.record = true;
  const Folder other;
  dl::State whole;
  {
    TinyConfig apart = config;
    apart.workspace_root = other.path().string();
    TrackingRunner runner(apart);
    runner.train();
    whole = dl::clone(runner.state_dict());
    CHECK(runner.close());
  }
  {
    TrackingRunner runner(config);
    runner.stop_at = 9;
    CHECK_THROWS_AS(runner.train(), dl::Stopped);
  }
  config.auto_resume = true;
  TrackingRunner runner(config);
  runner.train();
  CHECK(runner.average.updates == 21);
  CHECK(runner.replay.seen.size() == 21);
  for (const auto* part : {"callbacks", "tracked", "model", "optimizer"}) {
    CHECK(dl::first_difference(whole.at(part), runner.state_dict().at(part)) == "");
  }
}

TEST_CASE("Callback: states without their callback are a warning, missing tracked states an error", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  fs::path plain;
  fs::path rich;
  {
    TinyRunner runner(config);
    runner.train();
    CHECK(runner.close());
    plain = folder.path() / "plain.pth";
    fs::copy_file(runner.workspace().checkpoint_dir() / "latest.pth", plain);
  }
  {
    TrackingRunner runner(config);
    runner.train();
    CHECK(runner.close());
    rich = folder.path() / "rich.pth";
    fs::copy_file(runner.workspace().checkpoint_dir() / "latest.pth", rich);
  }
  std::vector<std::string> lines;
  TinyRunner runner(config);
  collect_warnings(runner, lines);
  runner.load_checkpoint(rich);
  CHECK(lines == std::vector<std::string>{"runner.load_checkpoint: the checkpoint has the state of a callback "
                                          "'MovingAverage', which this run does not have",
                                          "runner.load_checkpoint: the checkpoint has the state of 'replay' under "
                                          "'tracked', which this run does not track"});
  TrackingRunner tracking(config);
  CHECK(danling_test::error_of<dl::CheckpointError>([&] { tracking.load_checkpoint(plain); }) ==
        "[runner.load_checkpoint] expected the state of 'replay' under 'tracked' in the checkpoint, got none; put "
        "'tracked' into checkpoint.exclude_from_loading to begin with it anew");
  Replay late;
  CHECK(danling_test::error_of<dl::StateError>([&] { tracking.track("late", late); }) ==
        "[runner.track] expected a call before initialize(), got one later");
}

TEST_CASE("Callback: it may end training, save and ask for an evaluation", "[runner]") {
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
  // One line more, and the others, which hold the averages of whole passes, as they were.
  CHECK(count(lines, "\n") == count(whole.first, "\n") + 1);
  std::istringstream in(whole.first);
  for (std::string line; std::getline(in, line);) {
    CHECK_THAT(lines, Contains(line));
  }
  std::vector<double> fewer;
  CHECK(run("end", fewer).second == (config.epochs ? 14 : 9));
}

TEST_CASE("Callback: it may infer in the middle of a pass, which goes on as if nothing had been", "[runner]") {
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

TEST_CASE("TorchRunner: options of evaluation that a run would not obey are said", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.evaluate_interval = 5;
  CHECK(danling_test::error_of<dl::ConfigError>([&] { TinyRunner runner(config); }) ==
        "[config.validate] expected 'evaluate_interval' beside 'steps', got it beside 'epochs', where every epoch is "
        "evaluated");
  config.epochs.reset();
  config.steps = 10;
  config.sched.type = "linear";
  config.sched.interval = "epoch";
  TinyRunner refused(config);
  CHECK(danling_test::error_of<dl::ConfigError>([&] { refused.train(); }) ==
        "[runner.train] expected sched.interval step beside evaluate_interval, which cuts passes over the data, got "
        "'epoch'");
  config.sched = {};
  config.evaluate_interval.reset();
  config.patience = 3;
  std::vector<std::string> warnings;
  TinyRunner runner(config);
  collect_warnings(runner, warnings);
  runner.train();
  CHECK(warnings == std::vector<std::string>{"patience ends no run by `steps` without evaluations on the way; set "
                                             "evaluate_interval"});
}

TEST_CASE("TorchRunner: by steps patience ends a run that is evaluated on the way, and it stays ended", "[runner]") {
  struct Flat : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      auto output = TinyRunner::evaluate_step(batch);
      output.loss = torch::ones({});
      return output;
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 100;
  config.evaluate_interval = 5;
  config.patience = 2;
  {
    Flat runner(config);
    runner.train();
    CHECK(runner.state().train.global_step == 15);
    CHECK(runner.results().rows().size() == 3);
    CHECK(runner.close());
    CHECK_THAT(logs_of(runner.workspace().dir()), Contains("train: early stop, 2 evaluations without a better loss"));
  }
  config.auto_resume = true;
  Flat again(config);
  again.train();
  CHECK(again.state().train.global_step == 15);
  CHECK(again.close());
  CHECK_THAT(logs_of(again.workspace().dir()),
             Contains("train: nothing to do, 15 of 100 steps are done and early stopping has ended the run"));
}

TEST_CASE("TorchRunner: evaluations on the way of a run by steps choose the best, and resume bit for bit", "[runner]") {
  TinyConfig config;
  config.steps = 23;
  config.evaluate_interval = 4;
  config.checkpoint.interval = 6;
  config.accum_steps = 2;
  config.log_interval = 3;
  const Outcome whole = run_through(config);
  for (const std::int64_t at : {7, 8, 16, 30, 38}) {
    INFO("stopped before micro-batch " << at);
    const Folder folder;
    config.workspace_root = folder.path().string();
    config.auto_resume = false;
    {
      TinyRunner runner(config);
      runner.before_step = [at](TinyRunner& self, std::int64_t done) {
        if (done == at) {
          self.request_stop();
        }
      };
      CHECK_THROWS_AS(runner.train(), dl::Stopped);
    }
    config.auto_resume = true;
    TinyRunner runner(config);
    runner.train();
    CHECK(runner.close());
    std::vector<std::int64_t> rows;
    for (const auto& row : runner.results().rows()) {
      rows.push_back(row.index);
    }
    CHECK(rows == std::vector<std::int64_t>{4, 8, 12, 16, 20, 23});
    CHECK(fs::exists(runner.workspace().checkpoint_dir() / "best.pth"));
    check_same(whole, outcome_of(runner.workspace().dir()));
  }
}

TEST_CASE("Callback: one that throws when the run is stopped does not prevent the save", "[runner]") {
  struct Throwing : dl::Callback {
    std::string name() const override { return "throwing"; }
    void on_stop(const dl::StopEvent&) override { throw std::runtime_error("bad stop"); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  TinyRunner runner(config);
  runner.add(Throwing());
  runner.before_step = [](TinyRunner& self, std::int64_t done) {
    if (done == 3) {
      self.request_stop();
    }
  };
  CHECK(danling_test::error_of<dl::Error>([&] { runner.train(); }) ==
        "[runner.callback] expected 'throwing' to return, got an exception: bad stop");
  CHECK(dl::load_file(runner.workspace().checkpoint_dir() / "latest.pth")
            .at("state")
            .at("train")
            .at("global_step")
            .integer() == 4);
}

TEST_CASE("TorchRunner: errors of states name the tracked object, and states of none are a warning", "[runner]") {
  struct Unwilling {
    dl::State state_dict() const { return 3; }
    void load_state_dict(const dl::State&) { throw std::runtime_error("cannot load"); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  Unwilling replay;
  config.hidden = 9;
  TinyRunner runner(config);
  runner.track("replay", replay);
  runner.initialize();
  const dl::State saved = dl::clone(runner.state_dict());
  CHECK(danling_test::error_of<dl::CheckpointError>([&] { runner.load_checkpoint(saved); }) ==
        "[runner.track] expected the object 'replay' to give or take its state, got an exception: cannot load");

  TinyRunner without(config);
  std::vector<std::string> warnings;
  collect_warnings(without, warnings);
  without.load_checkpoint(saved);
  CHECK(warnings == std::vector<std::string>{"runner.load_checkpoint: the checkpoint has the state of 'replay' under "
                                             "'tracked', which this run does not track"});
}

TEST_CASE("Callback: an evaluation that was asked for is made again where a stop has cut it off", "[runner]") {
  struct Asking : dl::Callback {
    std::string name() const override { return "asking"; }
    void on_step(const dl::StepEvent& event) override {
      if (event.runner.state().train.global_step == 3) {
        event.runner.request_evaluation();
      }
    }
  };
  struct Evaluating : TinyRunner {
    using TinyRunner::TinyRunner;
    bool stops = false;
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      if (stops) {
        request_stop();
      }
      return TinyRunner::evaluate_step(batch);
    }
  };
  const auto run = [](bool stops) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 2;
    if (stops) {
      Evaluating runner(config);
      runner.add(Asking());
      runner.stops = true;
      CHECK_THROWS_AS(runner.train(), dl::Stopped);
      CHECK(runner.state().train.global_step == 3);
      config.auto_resume = true;
    }
    Evaluating runner(config);
    runner.add(Asking());
    runner.train();
    CHECK(runner.close());
    return outcome_of(runner.workspace().dir());
  };
  check_same(run(true), run(false));
}

TEST_CASE("Callback: what it saves at any event resumes as the run went on", "[runner]") {
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
    fs::path mine;
    for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
      if (entry.path().filename() == "mine.pth") {
        mine = entry.path();
      }
    }
    const Folder other;
    TinyConfig resuming = config;
    resuming.resume = mine.string();
    Outcome resumed = run(resuming, other, "");
    resumed.checkpoint["metrics_lines"] = whole.checkpoint.at("metrics_lines");  // an evaluation may be made again
    CHECK(dl::first_difference(resumed.checkpoint, whole.checkpoint) == "");
    CHECK(resumed.results == whole.results);
  }
}

TEST_CASE("TorchRunner: a stop in the middle of an evaluation that a callback makes is saved at the next step",
          "[runner]") {
  struct Evaluating : dl::Callback {
    TinyRunner* runner = nullptr;
    std::string name() const override { return "evaluating"; }
    void on_step(const dl::StepEvent&) override {
      if (runner->state().train.global_step == 3) {
        runner->request_stop();
        runner->evaluate();
        CHECK(runner->infer("val").size(0) == 20);
      }
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  TinyRunner runner(config);
  runner.add(Evaluating()).runner = &runner;
  std::string text;
  try {
    runner.train();
  } catch (const dl::Stopped& stopped) {
    text = stopped.what();
  }
  CHECK(text == "[runner.stop] stopped by SIGTERM in epoch 1, at step 4; the run is saved");
  CHECK(fs::exists(runner.workspace().checkpoint_dir() / "latest.pth"));
  runner.load_checkpoint(runner.workspace().checkpoint_dir() / "latest.pth");  // then the stop is over
  runner.train();
  CHECK(runner.state().train.epoch == 2);
  CHECK(runner.state().train.global_step == 14);
}

TEST_CASE("TorchRunner: a stop that saves nothing says so, and so does a forced save", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 9;
  config.record = false;
  TinyRunner runner(config);
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.before_step = [](TinyRunner& self, std::int64_t done) {
    if (done == 2) {
      self.request_stop();
    }
  };
  std::string text;
  try {
    runner.train();
  } catch (const dl::Stopped& stopped) {
    text = stopped.what();
  }
  CHECK(text == "[runner.stop] stopped by SIGTERM at step 3; nothing is saved, as the config says");
  runner.save_checkpoint("mine", false, false, true);
  CHECK(warnings ==
        std::vector<std::string>{"runner.save_checkpoint: expected a place to save 'mine' in, got record: false"});
}

TEST_CASE("Callback: it may evaluate and infer where a pass begins, which trains as if nothing had been", "[runner]") {
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

TEST_CASE("Callback: one that is added by a pointer to its base hears of steps too", "[runner]") {
  struct Counting : dl::Callback {
    std::int64_t steps = 0;
    std::string name() const override { return "counting"; }
    void on_step(const dl::StepEvent&) override { ++steps; }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  const auto counting = std::make_shared<Counting>();
  runner.add(std::shared_ptr<dl::Callback>(counting));
  runner.train();
  CHECK(counting->steps == 7);
}

TEST_CASE("Callback: one that throws when it hears of an exception does not take its place", "[runner]") {
  struct Throwing : dl::Callback {
    std::string name() const override { return "throwing"; }
    void on_exception(const dl::ExceptionEvent&) override { throw std::runtime_error("another"); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  runner.add(Throwing());
  runner.before_step = [](TinyRunner&, std::int64_t) { throw std::runtime_error("the first"); };
  CHECK_THAT(danling_test::error_of<dl::Error>([&] { runner.train(); }), Contains("the first"));
}

}  // namespace
}  // namespace runner_test
