// States of callbacks and of tracked objects in checkpoints.
#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("Callback: an exception of its state has its name, in saves and in loads", "[runner]") {
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
    CHECK(error_of<dl::Error>([&] { runner.state_dict(); }) ==
          "[runner.callback] expected 'Stateful' to return its state, got an exception: a lost buffer");
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
  CHECK_THAT(error_of<dl::Error>([&] { runner.load_checkpoint(saved); }),
             ContainsSubstring(
                 "[runner.callback] expected 'Stateful' to load the state of the checkpoint, got an exception: "));
}

/// Keeps an average of the weights in its state.
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
    register_state("replay", replay);
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

TEST_CASE("Callback: states of callbacks and of tracked objects resume with the run", "[runner]") {
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

TEST_CASE("Callback: a state without its callback is a warning, a tracked object without a state an error",
          "[runner]") {
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
  CHECK(error_of<dl::CheckpointError>([&] { tracking.load_checkpoint(plain); }) ==
        "[runner.load_checkpoint] expected the state of 'replay' under 'tracked' in the checkpoint, got none; put "
        "'tracked' into checkpoint.exclude_from_loading to keep its initial state");
  Replay late;
  CHECK(error_of<dl::StateError>([&] { tracking.register_state("late", late); }) ==
        "[runner.register_state] expected a call before initialize(), got one later");
}

TEST_CASE("TorchRunner: an exception of a tracked state names the object, and a state without an object is a warning",
          "[runner]") {
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
  runner.register_state("replay", replay);
  runner.initialize();
  const dl::State saved = dl::clone(runner.state_dict());
  CHECK(
      error_of<dl::CheckpointError>([&] { runner.load_checkpoint(saved); }) ==
      "[runner.register_state] expected the object 'replay' to save or load its state, got an exception: cannot load");

  TinyRunner without(config);
  std::vector<std::string> warnings;
  collect_warnings(without, warnings);
  without.load_checkpoint(saved);
  CHECK(warnings == std::vector<std::string>{"runner.load_checkpoint: the checkpoint has the state of 'replay' under "
                                             "'tracked', which this run does not track"});
}

}  // namespace
}  // namespace runner_test
