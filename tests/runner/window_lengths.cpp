// Models whose accumulation windows have different lengths: steps of the run, updates and schedules of each model.
#include "runner/window_lengths.hpp"

#include "fixture.hpp"

namespace runner_test {
namespace {

/// Two models with a loss each in each micro-batch.
class ActorCritic : public dl::TorchRunner {
 public:
  explicit ActorCritic(const TinyConfig& config) : TorchRunner(config) {
    models["actor"] = torch::nn::Linear(4, 1);
    models["critic"] = torch::nn::Linear(4, 1);
    double value = 0.1;
    for (auto& [name, handle] : models) {
      for (const auto& parameter : handle.named_parameters()) {
        torch::NoGradGuard guard;
        parameter.second.detach().fill_(value += 0.1);
      }
    }
    datasets["train"] = Points{make_points(config.records, 0), true};
    datasets["val"] = Points{make_points(8, 1000), false};
  }
  ~ActorCritic() override { close(); }
  std::int64_t updates(const std::string& name) { return state_dict().at("models").at(name).at("updates").integer(); }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    at::Tensor last;
    for (const std::string name : {"actor", "critic"}) {
      last = models[name](batch.input).square().mean();
      backward(last, name);
      step(name);
    }
    return {{}, last};
  }
  dl::StepOutput evaluate_step(dl::Batch& batch) override { return {{}, models["actor"](batch.input).square().mean()}; }
};

TinyConfig pair_config(const Folder& folder) {
  TinyConfig config(folder);
  config.records = 64;  // eight micro-batches
  config.dataloader.shuffle = false;
  config.optim.type = "sgd";
  config.optim.lr = 0.01;
  config.optim.models["critic"].accum_steps = 3;
  return config;
}

TEST_CASE("models: evaluate_interval does not shorten the window of a model", "[runner]") {
  dl::State reference;
  for (const std::int64_t interval : {0, 1, 2, 4, 5}) {
    const Folder folder;
    TinyConfig config = pair_config(folder);
    config.steps = 13;
    if (interval > 0) {
      config.evaluate_interval = interval;
    }
    ActorCritic runner(config);
    runner.train();
    INFO("evaluate_interval " << interval);
    CHECK(runner.state().train.global_step == 13);
    CHECK(runner.updates("actor") == 13);
    CHECK(runner.updates("critic") == 5);  // after micro-batches 3, 6, 8 of the first pass, 3, and 5 at the end
    if (interval == 0) {
      reference = dl::clone(runner.state_dict().at("models"));
    }
    CHECK(dl::first_difference(runner.state_dict().at("models"), reference) == "");
  }
}

TEST_CASE("models: the schedule of a model has the length of its updates", "[runner]") {
  const Folder folder;
  TinyConfig config = pair_config(folder);
  config.sched.type = "linear";
  config.sched.warmup_steps = 0;
  config.sched.cooldown_steps = 0;
  config.sched.final_lr_ratio = 0.0;
  SECTION("by epochs") { config.epochs = 4; }
  SECTION("by steps") { config.steps = 32; }
  SECTION("with a common window that no model has") {
    config.epochs = 4;
    config.accum_steps = 4;
    config.optim.models["actor"].accum_steps = 1;
  }
  ActorCritic runner(config);
  runner.train();
  CHECK(runner.steps() == 32);
  CHECK(runner.updates("critic") == 12);
  for (const auto* name : {"actor", "critic"}) {
    INFO(name);
    CHECK(runner.optimizers.at(name)->param_groups().front().lr == Approx(0.0).margin(1e-8));
  }
}

TEST_CASE("models: saves of checkpoint.interval wait for the end of all windows", "[runner]") {
  const Folder folder;
  TinyConfig config = pair_config(folder);
  config.records = 192;
  config.steps = 16;
  config.optim.models["actor"].accum_steps = 2;
  config.checkpoint.interval = 3;
  ActorCritic runner(config);
  runner.train();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(runner.workspace().checkpoint_dir())) {
    if (entry.path().filename().string().starts_with("ckpt-s")) {
      names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  // Four steps lie between two places where both windows are closed: due at 3, 6, 9, 12 and 15.
  CHECK(names == std::vector<std::string>{"ckpt-s000000000004", "ckpt-s000000000008", "ckpt-s000000000012",
                                          "ckpt-s000000000016"});
}

TEST_CASE("WindowLengths: steps and updates equal those counted by hand", "[runner]") {
  using dl::detail::WindowLengths;
  // Windows of 2 and 3 close after micro-batches 2, 3, 4, 6 of six, and after the last of a pass.
  const WindowLengths both({3, 2, 3});
  CHECK(both.steps_in(6) == 4);
  CHECK(both.steps_in(7) == 5);
  CHECK(both.steps_in(8) == 5);
  CHECK(both.updates_in(8, 2, {}) == 6);  // of twelve micro-batches
  CHECK(both.updates_in(8, 3, {}) == 4);
  CHECK(both.updates_in(10, 2, {7}) == 8);  // two passes of seven: 2, 4, 6, 7
  CHECK(both.updates_in(10, 3, {7}) == 6);  // 3, 6, 7
  const WindowLengths one({4, 4});
  CHECK(one.steps_in(9) == 3);
  CHECK(one.updates_in(11, 4, {9}) == 11);
}

// Batch by batch: a step of the run where any window closes, an update of each model where its own does.
std::pair<std::int64_t, std::int64_t> counted(const std::vector<std::int64_t>& lengths, std::int64_t own,
                                              std::int64_t steps, const std::vector<std::int64_t>& passes) {
  std::int64_t done = 0, made = 0, updates = 0;
  for (std::size_t pass = 0; made < steps;) {
    ++done;
    const bool last = !passes.empty() && done == passes[pass];
    bool counts = last;
    for (const std::int64_t length : lengths) {
      counts = counts || done % length == 0;
    }
    made += counts ? 1 : 0;
    updates += last || done % own == 0 || (counts && made == steps) ? 1 : 0;
    if (last) {
      done = 0;
      pass = (pass + 1) % passes.size();
    }
  }
  return {made, updates};
}

TEST_CASE("WindowLengths: over whole cycles and parts of them the counts are those of a loop over the batches",
          "[runner]") {
  using dl::detail::WindowLengths;
  const std::vector<std::vector<std::int64_t>> all{{1, 2}, {2, 3}, {3, 4, 6}, {5, 7}, {1, 16}};
  const std::vector<std::vector<std::int64_t>> passes{{}, {1}, {7}, {12, 5}, {3, 1, 20}};
  for (const auto& lengths : all) {
    const WindowLengths windows(lengths);
    for (std::int64_t batches = 0; batches < 90; ++batches) {
      std::int64_t steps = 0;
      for (std::int64_t done = 1; done <= batches; ++done) {
        steps += done == batches || std::any_of(lengths.begin(), lengths.end(),
                                                [&](std::int64_t length) { return done % length == 0; })
                     ? 1
                     : 0;
      }
      CHECK(windows.steps_in(batches) == steps);
    }
    for (const auto& pass : passes) {
      for (const std::int64_t own : lengths) {
        for (std::int64_t steps = 1; steps < 60; ++steps) {
          CHECK(windows.updates_in(steps, own, pass) == counted(lengths, own, steps, pass).second);
        }
      }
    }
  }
  // A year of steps takes no longer than a cycle.
  CHECK(WindowLengths({2, 3}).updates_in(4'000'000'000'000, 3, {}) == 2'000'000'000'000);
}

TEST_CASE("models: only the steps of a model update it", "[runner]") {
  // The batches go to `model` and to the critic in turn; the same by hand below.
  class Turns : public TinyRunner {
   public:
    explicit Turns(const TinyConfig& config) : TinyRunner(config) {
      model = torch::nn::Linear(4, 1);
      criterion = {};
      metrics = nullptr;
      models["critic"] = torch::nn::Linear(4, 1);
      datasets["train"] = Points{make_points(64, 0), true};
    }
    dl::StepOutput train_step(dl::Batch& batch) override {
      const bool critic = micro_batches++ % 2 == 0;
      const auto loss = (critic ? models["critic"] : model)(batch.input).square().mean();
      if (critic) {
        backward(loss, "critic");
        step("critic");
      } else {
        backward(loss);
        step();
      }
      return {{}, loss};
    }
    dl::StepOutput evaluate_step(dl::Batch& batch) override { return {{}, model(batch.input).square().mean()}; }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.dataloader.shuffle = false;
  config.accum_steps = 4;
  config.optim.type = "sgd";
  config.optim.lr = 0.1;
  Turns runner(config);
  torch::nn::Linear hand(4, 1);
  {
    torch::NoGradGuard guard;
    const auto from = runner.model.named_parameters();
    for (std::size_t i = 0; i < from.size(); ++i) {
      hand->parameters()[i].copy_(from[i].second);
    }
  }
  runner.train();
  torch::optim::SGD optimizer(hand->parameters(), 0.1);
  for (const int window : {0, 1}) {
    optimizer.zero_grad();
    for (const int batch : {1, 3}) {
      (hand->forward(make_points(8, (window * 4 + batch) * 8).input).square().mean() / 2).backward();
    }
    optimizer.step();
  }
  const auto got = runner.model.named_parameters();
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(torch::allclose(got[i].second, hand->parameters()[i], 1e-5, 1e-6));
  }
}

}  // namespace
}  // namespace runner_test
