// Events of callbacks: their order, and which callbacks receive them.
#include "fixture.hpp"

namespace runner_test {
namespace {

/// Records the events that it receives.
class Recorder : public dl::Callback {
 public:
  explicit Recorder(std::vector<std::string>& events, std::string name = "")
      : events_(events), name_(std::move(name)) {}
  std::string name() const override { return name_.empty() ? "recorder" : name_; }
  void on_run_begin(const dl::RunEvent&) override { record("run begin"); }
  void on_run_end(const dl::RunEvent&) override { record("run end"); }
  void on_round_begin(const dl::RoundEvent& event) override { record(dl::detail::concat("round begin ", event.index)); }
  void on_round_end(const dl::RoundEvent& event) override { record(dl::detail::concat("round end ", event.index)); }
  void on_result(const dl::ResultEvent& event) override { record(dl::detail::concat("result ", event.index)); }
  void on_train_begin(const dl::SplitEvent& event) override { record(dl::detail::concat("train begin ", event.total)); }
  void on_train_end(const dl::SplitEvent& event) override {
    CHECK(event.result.number("loss") != nullptr);
    record("train end");
  }
  void on_step(const dl::StepEvent& event) override {
    CHECK(event.loss.defined());
    CHECK(event.samples > 0);
    record(
        dl::detail::concat("step ", event.iteration, event.closes ? " closes" : "", event.updated ? " updated" : ""));
  }
  void on_log(const dl::LogEvent& event) override {
    record(dl::detail::concat("log ", event.split,
                              event.iteration ? dl::detail::concat(" ", *event.iteration) : std::string(" end")));
  }
  void on_evaluate_begin(const dl::SplitEvent& event) override {
    record(dl::detail::concat("evaluate begin ", event.split));
  }
  void on_evaluate_end(const dl::SplitEvent&) override { record("evaluate end"); }
  void on_save(const dl::SaveEvent& event) override {
    record(dl::detail::concat("save ", event.name, event.best ? " best" : "", event.last ? " last" : ""));
  }
  void on_restore(const dl::RestoreEvent& event) override {
    record(dl::detail::concat("restore ", event.path.filename().string()));
  }
  void on_stop(const dl::StopEvent& event) override { record(dl::detail::concat("stop ", event.signal)); }
  void on_exception(const dl::ExceptionEvent& event) override {
    record(dl::detail::concat("exception ", event.error.what()));
  }

 private:
  void record(const std::string& event) {
    events_.push_back(name_.empty() ? event : dl::detail::concat(name_, ": ", event));
  }

  std::vector<std::string>& events_;
  std::string name_;
};

TEST_CASE("Callback: a run by epochs sends its events in the documented order", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.records = 20;
  config.accum_steps = 2;
  config.log_interval = 2;
  std::vector<std::string> events;
  TinyRunner runner(config);
  runner.add(Recorder(events));
  runner.train();
  CHECK(events == std::vector<std::string>{
                      "run begin", "round begin 0", "train begin 3", "step 1", "step 2 closes updated",
                      "step 3 closes updated", "log train 3", "log train end", "train end", "evaluate begin val",
                      "log val end", "evaluate end", "result 0", "round end 0", "save latest best last", "run end"});
  events.clear();
  runner.evaluate();
  CHECK(events == std::vector<std::string>{"evaluate begin val", "log val end", "evaluate end"});
}

TEST_CASE("Callback: a run by steps sends a result for each evaluation", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 5;
  config.log_interval = 0;
  config.checkpoint.interval = 0;
  std::vector<std::string> events;
  std::vector<std::string> expected = {"result 5"};
  SECTION("at the end") {}
  SECTION("by evaluate_interval") {
    config.evaluate_interval = 2;
    expected = {"result 2", "result 4", "result 5"};
  }
  TinyRunner runner(config);
  runner.add(Recorder(events));
  runner.train();
  std::erase_if(events, [](const auto& text) { return !text.starts_with("result"); });
  CHECK(events == expected);
}

TEST_CASE("Callback: stops, restores and exceptions are events", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  std::vector<std::string> events;
  {
    TinyRunner runner(config);
    runner.add(Recorder(events));
    train_until(runner, 2);
    REQUIRE(events.size() > 2);
    CHECK(std::vector(events.end() - 2, events.end()) == std::vector<std::string>{"save latest", "stop 15"});
  }
  events.clear();
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.add(Recorder(events));
  runner.before_step = [](TinyRunner&, std::int64_t) { throw std::runtime_error("a bad batch"); };
  CHECK_THROWS(runner.train());
  CHECK(events.front() == "restore latest.pth");
  CHECK_THAT(events.back(), ContainsSubstring("exception ") && ContainsSubstring("a bad batch"));
}

TEST_CASE("Callback: callbacks are called in the order in which they were added", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  std::vector<std::string> events;
  TinyRunner runner(config);
  runner.add(Recorder(events, "b"));
  runner.add(Recorder(events, "a"));
  runner.train();
  REQUIRE(events.size() > 4);
  CHECK(events[0] == "b: run begin");
  CHECK(events[1] == "a: run begin");
  CHECK(error_of<dl::ConfigError>([&] { runner.add(Recorder(events, "a")); }) ==
        "[runner.add] expected callbacks of different names, got two 'a'; override name()");
}

TEST_CASE("Callback: callbacks that a callback adds receive the event that it handles", "[runner]") {
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

TEST_CASE("Callback: one that is added by a pointer to its base receives steps too", "[runner]") {
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

TEST_CASE("Callback: only overrides of on_step are called at steps", "[runner]") {
  struct Quiet : dl::Callback {};
  struct Loud : dl::Callback {
    void on_step(const dl::StepEvent&) override {}
  };
  struct Louder : Loud {};
  class Hidden : public dl::Callback {
    void on_step(const dl::StepEvent&) override {}
  };
  CHECK_FALSE(dl::detail::listens<Quiet>().steps);
  CHECK(dl::detail::listens<Loud>().steps);
  CHECK(dl::detail::listens<Louder>().steps);
  CHECK(dl::detail::listens<Hidden>().steps);
}

}  // namespace
}  // namespace runner_test
