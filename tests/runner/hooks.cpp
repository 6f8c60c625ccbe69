// Hooks of a runner: their order, and when they run.
#include "fixture.hpp"
#include "run_files.hpp"

namespace runner_test {
namespace {

class HookRecorder : public TinyRunner {
 public:
  explicit HookRecorder(const TinyConfig& config) : TinyRunner(config) { calls = "constructor"; }
  std::string calls;

 protected:
  void note(const char* name) { calls += std::string(" ") + name; }
  void init_distributed() override {
    note("init_distributed");
    TinyRunner::init_distributed();
  }
  void init_checkpoint_manager() override {
    note("init_checkpoint_manager");
    TinyRunner::init_checkpoint_manager();
  }
  void init_fault_tolerance() override {
    note("init_fault_tolerance");
    TinyRunner::init_fault_tolerance();
  }
  void build_dataloaders() override {
    note("build_dataloaders");
    TinyRunner::build_dataloaders();
  }
  void materialize_model() override {
    note("materialize_model");
    TinyRunner::materialize_model();
  }
  void build_optimizer() override {
    note("build_optimizer");
    TinyRunner::build_optimizer();
  }
  void build_scheduler() override {
    note("build_scheduler");
    TinyRunner::build_scheduler();
  }
  void build_metrics() override {
    note("build_metrics");
    TinyRunner::build_metrics();
  }
  void auto_restore() override {
    note("auto_restore");
    TinyRunner::auto_restore();
  }
  dl::StepOutput train_step(dl::Batch& batch) override {
    note("train_step");
    return TorchRunner::train_step(batch);
  }
  dl::PrecisionContext train_context() override {
    note("train_context");
    return TinyRunner::train_context();
  }
  void backward(const at::Tensor& loss) override {
    note("backward");
    TinyRunner::backward(loss);
  }
  bool optimizer_step() override {
    note("optimizer_step");
    return TinyRunner::optimizer_step();
  }
  dl::StepOutput evaluate_step(dl::Batch& batch) override {
    note("evaluate_step");
    return TorchRunner::evaluate_step(batch);
  }
  dl::PrecisionContext forward_context() override {
    note("forward_context");
    return TinyRunner::forward_context();
  }
};

TEST_CASE("TorchRunner: hooks are called in the documented order", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.accum_steps = 2;
  config.dataloader.batch_size = 25;
  HookRecorder runner(config);
  runner.train();
  CHECK(runner.calls ==
        "constructor init_distributed init_checkpoint_manager init_fault_tolerance build_dataloaders materialize_model "
        "build_optimizer build_scheduler build_metrics auto_restore "
        "train_step train_context backward train_step train_context backward optimizer_step "
        "evaluate_step forward_context");
}

/// Overrides hooks without a call of the base class.
class WithoutBase : public TinyRunner {
 public:
  WithoutBase(const TinyConfig& config, std::string hook) : TinyRunner(config), hook_(std::move(hook)) {}

  dl::State state_dict() override {
    dl::State out = hook_ == "state_dict" ? dl::State(dl::State::Map{}) : TinyRunner::state_dict();
    out["seen"] = 1;
    return out;
  }
  void load_state_dict(const dl::State& checkpoint) override {
    if (hook_ != "load_state_dict") {
      TinyRunner::load_state_dict(checkpoint);
    }
  }

 protected:
  void auto_restore() override {
    if (hook_ != "auto_restore") {
      TinyRunner::auto_restore();
    }
  }

 private:
  std::string hook_;
};

TEST_CASE("BaseRunner: an override of state_dict, load_state_dict or auto_restore without the base is an error",
          "[runner]") {
  const Folder folder;
  const TinyConfig config = two_epochs(folder);
  {
    WithoutBase runner(config, "state_dict");
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.state_dict] expected an override to add to the state of its base class, got one without it; begin "
          "with State out = TorchRunner::state_dict()");
  }
  std::filesystem::path saved;
  {
    WithoutBase runner(config, "");
    runner.train();
    saved = runner.workspace().checkpoint_dir() / "latest.pth";
  }
  const std::string before = read_file(saved);
  TinyConfig again = config;
  again.auto_resume = true;
  {
    WithoutBase runner(again, "auto_restore");
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.auto_restore] expected an override to call auto_restore() of its base class, got none: 'resume' and "
          "'pretrained' would do nothing");
  }
  {
    WithoutBase runner(config, "load_state_dict");
    CHECK(error_of<dl::StateError>([&] { runner.load_checkpoint(saved); }) ==
          "[runner.load_state_dict] expected an override to call load_state_dict() of its base class, got none: the "
          "run would not know where it is");
  }
  CHECK(read_file(saved) == before);
}

class FailingRunner : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;

 protected:
  void build_optimizer() override { dl::detail::fail<dl::ConfigError>("test.build", "expected luck, got none"); }
};

class ReentrantRunner : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;

 protected:
  void build_optimizer() override { initialize(); }
};

TEST_CASE("BaseRunner: initialize() runs once: after a failure, from a hook or when closed it is an error",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  {
    FailingRunner runner(config);
    CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) == "[test.build] expected luck, got none");
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.initialize] expected a runner that initialised, got one that failed before: [test.build] expected "
          "luck, got none");
  }
  {
    struct Throwing : TinyRunner {
      using TinyRunner::TinyRunner;

     protected:
      void build_optimizer() override { throw 42; }
    };
    Throwing runner(config);
    CHECK_THROWS_AS(runner.train(), int);
    CHECK(
        error_of<dl::StateError>([&] { runner.train(); }) ==
        "[runner.initialize] expected a runner that initialised, got one that failed before: an exception that is not "
        "a std::exception");
  }
  {
    ReentrantRunner runner(config);
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.initialize] expected to be called once, got a call from one of its hooks");
  }
  {
    TinyRunner runner(config);
    runner.initialize();
    CHECK(runner.close());
    CHECK(runner.close());
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.initialize] expected an open runner, got a closed one");
  }
}

TEST_CASE("BaseRunner: keeps the derived config, and refuses a reference to its base", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.hidden = 5;
  struct BaseReference : dl::TorchRunner {
    explicit BaseReference(const dl::RunnerConfig& base) : TorchRunner(base) {}
  };
  CHECK(error_of<dl::ConfigError>([&] { BaseReference runner(config); }) ==
        "[config.store] expected the config by its own type, runner_test::TinyConfig, got a reference to its base "
        "danling::v0::RunnerConfig, which would lose its fields");
  TinyRunner runner(config);
  CHECK(runner.config<TinyConfig>().hidden == 5);
}

TEST_CASE("TorchRunner: load_checkpoint calls the load hook of each component once, in order", "[runner]") {
  struct Converting : TinyRunner {
    explicit Converting(const TinyConfig& config) : TinyRunner(config) { ema = make_tiny_net(config); }
    void load_model(const dl::State& state) override { called("model"), TinyRunner::load_model(state); }
    void load_ema(const dl::State& state) override { called("ema"), TinyRunner::load_ema(state); }
    void load_optimizer(const dl::State& state) override {
      called("optimizer");
      dl::State converted = state;
      converted["param_groups"].list()[0]["weight_decay"] = 0.125;
      TinyRunner::load_optimizer(converted);
    }
    void load_scheduler(const dl::State& state) override { called("scheduler"), TinyRunner::load_scheduler(state); }
    void load_dataloaders(const dl::State& state) override { called("loaders"), TinyRunner::load_dataloaders(state); }
    void called(const char* name) { order += std::string(order.empty() ? "" : " ") + name; }
    std::string order;
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.sched.type = "linear";
  fs::path latest;
  {
    Converting runner(config);
    runner.train();
    CHECK(runner.order.empty());
    latest = runner.workspace().dir() / "checkpoints" / "latest.pth";
  }
  config.resume = latest.string();
  Converting runner(config);
  runner.initialize();
  CHECK(runner.order == "model ema optimizer scheduler loaders");
  CHECK(runner.optimizer->state_dict().at("param_groups").list()[0].at("weight_decay").number() == 0.125);
  runner.order.clear();
  runner.load_pretrained(latest);
  CHECK(runner.order == "model");
}

}  // namespace
}  // namespace runner_test
