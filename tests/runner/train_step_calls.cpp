// Calls of a train_step that the runner makes itself: each is an error or a warning, or changes nothing.
#include "fixture.hpp"
#include "points_runner.hpp"

namespace runner_test {
namespace {

/// A train_step with more calls than it needs.
struct Repeating : TinyRunner {
  using TinyRunner::TinyRunner;
  bool steps_optimizer = false, calls_backward = false, keeps_zeros = false, clips_weights = false;
  bool clears_gradients = false, sets_to_zero = false, updates_loss = false;
  dl::StepOutput train_step(dl::Batch& batch) override {
    const auto prediction = model(batch.input);
    const auto loss = torch::nn::functional::cross_entropy(prediction, batch.target);
    if (clears_gradients) {
      optimizer->zero_grad(/*set_to_none=*/!sets_to_zero);
    }
    if (updates_loss) {
      meters["loss"].update(loss.detach(), batch.size());
    }
    if (calls_backward) {
      loss.backward({}, /*retain_graph=*/true);
    }
    if (keeps_zeros) {
      loss.backward({}, /*retain_graph=*/true);
      optimizer->zero_grad(/*set_to_none=*/false);
    }
    backward(loss);
    if (steps_optimizer) {
      optimizer->step();
    }
    update_metrics(prediction, batch.target);
    step();
    if (clips_weights) {
      const at::NoGradGuard no_grad;
      for (auto& [name, parameter] : model.named_parameters()) {
        parameter.clamp_(-0.5, 0.5);
      }
    }
    return {prediction, loss};
  }
};

TEST_CASE("train_step: optimizer->step() before step() is an error", "[runner]") {
  const Folder folder;
  TinyConfig config = two_epochs(folder);
  config.accum_steps = GENERATE(1, 2);
  Repeating runner(config);
  runner.steps_optimizer = true;
  CHECK_THAT(error_of<dl::StateError>([&] { runner.train(); }),
             StartsWith("[runner.step] expected no other update of the model in train_step before step(), got a call "
                        "of optimizer->step(); remove it: step() calls the optimizer at the end of the accumulation "
                        "window; in train_step of split 'train', epoch 1, step 1"));
}

TEST_CASE("train_step: gradients before the first backward(loss) are one warning", "[runner]") {
  const Folder folder;
  const auto warnings_with = [&](bool Repeating::* mistake, std::int64_t accum_steps) {
    TinyConfig config = two_epochs(folder);
    config.accum_steps = accum_steps;
    std::vector<std::string> out;
    Repeating runner(config);
    runner.*mistake = true;
    collect_warnings(runner, out);
    runner.train();
    return out;
  };
  for (const std::int64_t accum_steps : {1, 3}) {
    CHECK(warnings_with(&Repeating::calls_backward, accum_steps) ==
          std::vector<std::string>{"runner.backward: a parameter has a gradient before the first backward(loss) of an "
                                   "update, which adds to it; if train_step also calls loss.backward(), remove that "
                                   "call"});
    CHECK(warnings_with(&Repeating::clips_weights, accum_steps).empty());
  }
  CHECK(warnings_with(&Repeating::keeps_zeros, 1).empty());
}

TEST_CASE("train_step: zero_grad() inside an accumulation window is an error, and without windows changes nothing",
          "[runner]") {
  const Folder folder;
  TinyConfig config = two_epochs(folder);
  config.accum_steps = GENERATE(2, 3);
  Repeating runner(config);
  runner.clears_gradients = true;
  runner.sets_to_zero = GENERATE(false, true);
  CHECK_THAT(error_of<dl::StateError>([&] { runner.train(); }),
             StartsWith("[runner.backward] expected the gradients of the micro-batches before this one, to which "
                        "backward(loss) adds, got none: does train_step call zero_grad()? Remove the call: step() "
                        "clears gradients after each update; in train_step of split 'train', epoch 1, step "));
  const Folder with, without;
  std::vector<Learned> learned;
  for (const bool clears : {true, false}) {
    Repeating whole(two_epochs(clears ? with : without));
    whole.clears_gradients = clears;
    learned.push_back(learn(whole));
  }
  check_same(learned[0], learned[1]);
}

TEST_CASE("train_step: micro-batches of a window may lack gradients, as without a valid target or a part of the model",
          "[runner]") {
  struct Dummy : TinyRunner {
    using TinyRunner::TinyRunner;
    bool returns_dummy = false, clears = false;
    dl::StepOutput train_step(dl::Batch& batch) override {
      if (clears) {
        optimizer->zero_grad();
      }
      const auto prediction = model(batch.input);
      const bool is_dummy = returns_dummy && state().train.micro_step % 2 == 0;
      const auto loss = is_dummy ? torch::zeros({}, torch::requires_grad())
                                 : torch::nn::functional::cross_entropy(prediction, batch.target);
      backward(loss);
      step();
      return {prediction, loss};
    }
  };
  const Folder folder;
  TinyConfig config = two_epochs(folder);
  config.accum_steps = 2;
  Dummy runner(config);
  SECTION("a dummy loss") { runner.returns_dummy = true; }
  SECTION("first batches without valid targets") {
    dl::Batch points = make_points(50, 0);
    points.target.slice(0, 0, 16).fill_(-100);
    runner.datasets["train"] = Points{points, false};
    SECTION("alone") {}
    SECTION("and zero_grad() later") {
      runner.clears = true;
      CHECK_THAT(error_of<dl::StateError>([&] { runner.train(); }),
                 StartsWith("[runner.backward] expected the gradients of the micro-batches before this one"));
      return;
    }
  }
  runner.train();
  CHECK(runner.state().train.epoch == 2);
}

TEST_CASE("train_step: an update of the meter of the loss that it returns is one warning", "[runner]") {
  const Folder folder;
  const auto warnings_with = [&](bool updates) {
    std::vector<std::string> out;
    Repeating runner(two_epochs(folder));
    runner.updates_loss = updates;
    collect_warnings(runner, out);
    runner.train();
    return out;
  };
  CHECK(warnings_with(true) ==
        std::vector<std::string>{
            "meters[\"loss\"] of split 'train' counts each batch twice: the step updates it, and the runner adds the "
            "loss that the step returns; remove the update, or give the meter another name"});
  CHECK(warnings_with(false).empty());
}

}  // namespace
}  // namespace runner_test
