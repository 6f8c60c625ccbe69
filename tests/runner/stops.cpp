// Stops: the state that they save, and the text of the error.
#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("stop: a checkpoint of the history that was saved at the same step stays as it is", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 20;
  config.checkpoint.interval = 7;  // also the length of a pass: the run stops after the end of the round
  TinyRunner runner(config);
  train_until(runner, 6);
  const auto checkpoints = runner.workspace().checkpoint_dir();
  runner.close();
  CHECK(dl::load_file(checkpoints / "ckpt-s000000000007.pth").at("loop").at("split").string() == "train");
  CHECK(step_of(checkpoints / "latest.pth") == 7);
}

TEST_CASE("stop: a stop within an epoch saves latest.pth and adds nothing to the history", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  TinyRunner runner(config);
  stop_before(runner, 10);
  int signal = 0;
  try {
    runner.train();
  } catch (const dl::Stopped& stopped) {
    signal = stopped.signal();
  }
  CHECK(signal == 15);
  const auto history = runner.workspace().dir() / "checkpoints" / "ckpt-e000001.pth";
  CHECK(step_of(history) == 7);
  CHECK_FALSE(fs::exists(runner.workspace().dir() / "checkpoints" / "ckpt-e000002.pth"));
}

TEST_CASE("stop: a stop in an evaluation of a callback is saved at the next step", "[runner]") {
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
  CHECK(error_of<dl::Stopped>([&] { runner.train(); }) ==
        "[runner.stop] stopped by SIGTERM in epoch 1, at step 4; the run is saved");
  CHECK(fs::exists(runner.workspace().checkpoint_dir() / "latest.pth"));
  runner.load_checkpoint(runner.workspace().checkpoint_dir() / "latest.pth");  // this ends the stop
  runner.train();
  CHECK(runner.state().train.epoch == 2);
  CHECK(runner.state().train.global_step == 14);
}

TEST_CASE("stop: with record: false the error says that nothing is saved, and a forced save warns", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 9;
  config.record = false;
  TinyRunner runner(config);
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  stop_before(runner, 2);
  CHECK(error_of<dl::Stopped>([&] { runner.train(); }) ==
        "[runner.stop] stopped by SIGTERM at step 3; nothing is saved, as configured");
  runner.save_checkpoint("mine", false, false, true);
  CHECK(warnings ==
        std::vector<std::string>{"runner.save_checkpoint: expected a place to save 'mine' in, got record: false"});
}

}  // namespace
}  // namespace runner_test
