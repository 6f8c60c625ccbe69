// Calls of train_on_batch, evaluate_on_batch and finish_training in a wrong order or state.
#include "fixture.hpp"
#include "hosted.hpp"

namespace runner_test {
namespace {

TEST_CASE("train_on_batch: calls in a wrong order are errors with the right order", "[runner]") {
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
        "[runner.train_on_batch] expected `steps`, or neither, in a loop of the program, got epochs=3");

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
  CHECK_THAT(
      error_of<dl::StateError>([&] { nested.train_on_batch(pushed(0)); }),
      ContainsSubstring("[runner.train_on_batch] expected a call after train() or train_on_batch() has returned or "
                        "thrown, got one during it"));
}

TEST_CASE("train_on_batch: a callback cannot train, finish or load a checkpoint during a step", "[runner]") {
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
                "during it");
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

TEST_CASE("train_on_batch: on_run_begin cannot train", "[runner]") {
  struct Eager : dl::Callback {
    HostedRunner* runner = nullptr;
    std::string name() const override { return "eager"; }
    void on_run_begin(const dl::RunEvent&) override { runner->train_on_batch(pushed(0)); }
  };
  const Folder folder;
  HostedRunner runner(hosted(folder));
  runner.add(Eager()).runner = &runner;
  CHECK_THAT(
      error_of<dl::Error>([&] { runner.train_on_batch(pushed(0)); }),
      ContainsSubstring("[runner.train_on_batch] expected a call after train() or train_on_batch() has returned"));
}

TEST_CASE("finish_training: after an exception it can be called again, and counts nothing twice", "[runner]") {
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

TEST_CASE("finish_training: a loss that is not finite is the same error each time, and no model is exported",
          "[runner]") {
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
               ContainsSubstring("[runner.loss] expected a finite loss, got nan in split 'train'"));
  }
  CHECK_FALSE(fs::exists(runner.workspace().checkpoint_dir() / "model.pth"));
}

}  // namespace
}  // namespace runner_test
