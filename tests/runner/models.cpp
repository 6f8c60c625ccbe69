#include <set>

#include "fixture.hpp"

namespace runner_test {
namespace {

using Catch::Matchers::Contains;
using danling_test::error_of;

torch::nn::Sequential layers(std::int64_t in, std::int64_t out, double scale) {
  auto net = torch::nn::Sequential(torch::nn::Linear(in, 8), torch::nn::Tanh(), torch::nn::Linear(8, out));
  const at::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) {
    parameter.copy_(torch::linspace(-scale, scale, parameter.numel()).view_as(parameter));
    scale *= 0.8;
  }
  return net;
}

at::Tensor score(const at::Tensor& logits, double target) {
  return torch::nn::functional::binary_cross_entropy_with_logits(logits, torch::full_like(logits, target));
}

/// A generator of four numbers and what tells them from the data; the noise is the data rolled by one.
class GanRunner : public dl::TorchRunner {
 public:
  explicit GanRunner(const TinyConfig& config) : TorchRunner(config) {
    models["generator"] = layers(4, 4, 0.5);
    models["discriminator"] = layers(4, 1, 0.4);
    datasets["train"] = Points{make_points(config.records, 0), true};
  }
  ~GanRunner() override { close(); }
  std::int64_t stop_at = -1;
  int inner = 1;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (batches_++ == stop_at) {
      request_stop();
    }
    const auto noise = batch.input.roll(1, 0);
    for (int i = 0; i < inner; ++i) {
      const at::Tensor fake = models["generator"](noise);
      const auto loss =
          score(models["discriminator"](batch.input), 1.0) + score(models["discriminator"](fake.detach()), 0.0);
      backward(loss, "discriminator");
      step("discriminator");
    }
    const at::Tensor fake = models["generator"](noise);
    const auto loss = score(models["discriminator"](fake), 1.0);
    backward(loss, "generator");
    step("generator");
    meters["loss_generator"].update(loss, batch.size());
    return {fake, loss};
  }

 private:
  std::int64_t batches_ = 0;
};

TinyConfig gan_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 3;
  config.dataloader.shuffle = false;
  config.optim.type = "sgd";
  config.optim.lr = 0.1;
  config.optim.models["generator"].lr = 0.05;
  config.optim.models["discriminator"].momentum = 0.9;
  return config;
}

TEST_CASE("TorchRunner: two models train each by its own loss, as in a loop by hand", "[runner]") {
  const Folder folder;
  TinyConfig config = gan_config(folder);
  const int inner = GENERATE(1, 2);
  GanRunner runner(config);
  runner.inner = inner;
  runner.train();
  CHECK(runner.state().train.global_step == 21);

  auto generator = layers(4, 4, 0.5);
  auto discriminator = layers(4, 1, 0.4);
  torch::optim::SGD of_generator(generator->parameters(), torch::optim::SGDOptions(0.05));
  torch::optim::SGD of_discriminator(discriminator->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto points = make_points(50, 0).input;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (std::int64_t at = 0; at < 50; at += 8) {
      const auto real = points.slice(0, at, std::min<std::int64_t>(at + 8, 50));
      const auto noise = real.roll(1, 0);
      for (int i = 0; i < inner; ++i) {
        of_discriminator.zero_grad();
        (score(discriminator->forward(real), 1.0) +
         score(discriminator->forward(generator->forward(noise).detach()), 0.0))
            .backward();
        of_discriminator.step();
      }
      of_generator.zero_grad();
      score(discriminator->forward(generator->forward(noise)), 1.0).backward();
      of_generator.step();
    }
  }
  const auto compare = [](const dl::ModelHandle& ours, const torch::nn::Sequential& theirs) {
    const auto expected = theirs->named_parameters();
    for (const auto& [name, value] : ours.named_parameters()) {
      INFO(name);
      CHECK(torch::allclose(value, expected[name], 1e-5, 1e-6));
    }
  };
  compare(runner.models["generator"], generator);
  compare(runner.models["discriminator"], discriminator);
}

TEST_CASE("TorchRunner: several models resume bit for bit, with windows of several lengths and schedules", "[runner]") {
  const auto prepared = [](const Folder& folder) {
    TinyConfig config = gan_config(folder);
    config.records = 90;
    config.optim.models["generator"].accum_steps = 3;
    config.optim.models["discriminator"].accum_steps = 2;
    config.optim.models["generator"].max_grad_norm = 0.1;
    config.sched.models["generator"].type = "cosine";
    config.log_interval = 4;
    return config;
  };
  const Folder whole_folder;
  GanRunner whole(prepared(whole_folder));
  whole.train();
  CHECK(whole.close());
  const auto expected = outcome_of(whole.workspace().dir());
  // 12 micro-batches in an epoch: 6 windows of the discriminator, 4 of the generator, which share every sixth.
  const dl::State& saved = expected.checkpoint.at("models");
  CHECK(saved.at("discriminator").at("updates").integer() == 18);
  CHECK(saved.at("generator").at("updates").integer() == 12);
  CHECK(expected.checkpoint.at("state").at("train").at("global_step").integer() == 24);
  CHECK(saved.at("generator").at("scheduler").is_map());
  CHECK_FALSE(saved.at("discriminator").at("scheduler").is_map());
  for (const std::int64_t at : {1, 6, 13, 20}) {
    INFO("stopped in micro-batch " << at);
    const Folder folder;
    TinyConfig config = prepared(folder);
    {
      GanRunner runner(config);
      runner.stop_at = at;
      CHECK_THROWS_AS(runner.train(), dl::Stopped);
      CHECK(runner.state().train.micro_step % 6 == 0);  // where all windows are closed
    }
    config.auto_resume = true;
    GanRunner runner(config);
    runner.train();
    CHECK(runner.close());
    check_same(expected, outcome_of(runner.workspace().dir()));
  }
}

TEST_CASE("TorchRunner: a model that is not trained is moved, saved and left as it is", "[runner]") {
  class Distilled : public TinyRunner {
   public:
    explicit Distilled(const TinyConfig& config) : TinyRunner(config) {
      models["teacher"] = make_tiny_net(config);
      optimizers["teacher"] = nullptr;
      auto frozen = layers(4, 3, 0.5);
      for (auto& parameter : frozen->parameters()) {
        parameter.requires_grad_(false);
      }
      models["frozen"] = frozen;
    }
    dl::StepOutput train_step(dl::Batch& batch) override {
      const auto prediction = model(batch.input);
      const auto loss =
          torch::mse_loss(prediction, models["frozen"](batch.input) + models["teacher"](batch.input).detach());
      backward(loss);
      step();
      return {prediction, loss};
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  Distilled runner(config);
  std::vector<at::Tensor> before;
  for (const auto& [name, value] : runner.models["teacher"].named_parameters()) {
    before.push_back(value.detach().clone());
  }
  runner.train();
  CHECK(runner.optimizers.at("teacher") == nullptr);
  CHECK_FALSE(runner.optimizers.contains("frozen"));
  std::size_t at = 0;
  for (const auto& [name, value] : runner.models["teacher"].named_parameters()) {
    CHECK(torch::equal(value, before[at++]));
  }
  CHECK(runner.close());
  const auto exported = dl::load_file(runner.workspace().checkpoint_dir() / "model.pth");
  CHECK(exported.at("models").at("teacher").at("model").find("0.weight") != nullptr);
  CHECK(exported.at("model").find("0.weight") != nullptr);
  CHECK(fs::exists(runner.workspace().checkpoint_dir() / "model-teacher.safetensors"));
}

TEST_CASE("TorchRunner: the weights of several models are loaded from what a run exported", "[runner]") {
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.epochs = 1;
  GanRunner trained(config);
  trained.train();
  CHECK(trained.close());
  config.hidden = 9;  // another run
  GanRunner fresh(config);
  const auto match = fresh.load_pretrained(trained.workspace().checkpoint_dir() / "model.pth");
  CHECK(match.complete());
  CHECK(match.loaded.size() == 8);
  for (const auto* name : {"generator", "discriminator"}) {
    CHECK(dl::first_difference(trained.models[name].state_dict(), fresh.models[name].state_dict()) == "");
  }
  dl::State other;
  other["weight"] = torch::ones({2});
  CHECK(error_of<dl::CheckpointError>([&] { fresh.load_pretrained(other); }) ==
        "[runner.load_pretrained] expected the weights of several models under 'models' in the checkpoint, got none");
}

TEST_CASE("TorchRunner: several models evaluate in evaluation mode, and train in training mode where they learn",
          "[runner]") {
  class Modes : public GanRunner {
   public:
    explicit Modes(const TinyConfig& config) : GanRunner(config) {
      models["teacher"] = torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::Dropout(0.5));
      models["noise"] = torch::nn::Dropout(0.5);
      optimizers["teacher"] = nullptr;
      datasets["val"] = Points{make_points(8, 1000), false};
    }
    std::string modes() {
      std::string out;
      for (auto& [name, handle] : models) {
        out += handle.module()->is_training() ? 't' : 'e';
      }
      return out;  // discriminator, generator, noise, teacher
    }
    std::set<std::string> training, evaluating;

   protected:
    dl::StepOutput train_step(dl::Batch& batch) override {
      training.insert(modes());
      return GanRunner::train_step(batch);
    }
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      evaluating.insert(modes());
      return {{}, score(models["discriminator"](batch.input), 1.0)};
    }
  };
  const Folder folder;
  Modes runner(gan_config(folder));
  runner.train();
  CHECK(runner.training == std::set<std::string>{"ttte"});
  CHECK(runner.evaluating == std::set<std::string>{"eeee"});
}

TEST_CASE("TorchRunner: the loss of one model leaves the gradients of the others alone", "[runner]") {
  // The main model's loss goes through the critic, whose window is open then; the critic's own loss has no gradient.
  class Through : public TinyRunner {
   public:
    explicit Through(const TinyConfig& config) : TinyRunner(config) {
      auto critic = layers(3, 1, 0.4);
      critic->parameters()[0].requires_grad_(false);  // a part of it is frozen
      models["critic"] = critic;
    }
    dl::StepOutput train_step(dl::Batch& batch) override {
      const auto prediction = model(batch.input);
      backward(models["critic"](prediction.detach()).mean() * 0.0, "critic");
      const auto loss = models["critic"](prediction).mean();
      backward(loss);
      step();
      step("critic");
      return {prediction, loss};
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.optim.type = "sgd";
  config.accum_steps = 2;
  Through runner(config);
  std::vector<at::Tensor> before;
  for (const auto& [name, value] : runner.models["critic"].named_parameters()) {
    before.push_back(value.detach().clone());
  }
  runner.train();
  std::size_t at = 0;
  for (const auto& [name, value] : runner.models["critic"].named_parameters()) {
    INFO(name);
    CHECK(torch::equal(value, before[at++]));
  }
}

TEST_CASE("TorchRunner: several models roll back to a checkpoint and go on as if nothing had been", "[runner]") {
  class RollingBack : public GanRunner {
   public:
    using GanRunner::GanRunner;
    std::int64_t fails_at = 0;

   protected:
    dl::StepOutput train_step(dl::Batch& batch) override {
      if (++steps_ == fails_at) {
        throw std::runtime_error("a bad batch");
      }
      return GanRunner::train_step(batch);
    }

   private:
    std::int64_t steps_ = 0;
  };
  const auto run = [](std::int64_t fails_at) {
    const Folder folder;
    const TinyConfig config = gan_config(folder);
    RollingBack runner(config);
    runner.fails_at = fails_at;
    if (fails_at > 0) {
      CHECK_THROWS_AS(runner.train(), std::runtime_error);
      runner.load_checkpoint(runner.workspace().checkpoint_dir() / "latest.pth");
    }
    runner.train();
    return dl::clone(runner.state_dict().at("models"));
  };
  CHECK(dl::first_difference(run(10), run(0)) == "");
}

TEST_CASE("TorchRunner: wrong names of models are errors that list the right ones", "[runner]") {
  const Folder folder;
  class Wrong : public GanRunner {
   public:
    Wrong(const TinyConfig& config, std::function<void(Wrong&, const at::Tensor&)> act)
        : GanRunner(config), act_(std::move(act)) {}
    using GanRunner::backward;
    dl::StepOutput train_step(dl::Batch& batch) override {
      const auto loss = score(models["discriminator"](batch.input), 1.0);
      act_(*this, loss);
      return {{}, loss};
    }

   private:
    std::function<void(Wrong&, const at::Tensor&)> act_;
  };
  const auto told = [&](const std::function<void(Wrong&, const at::Tensor&)>& act) {
    Wrong runner(gan_config(folder), act);
    try {
      runner.train();
    } catch (const dl::Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  CHECK_THAT(told([](Wrong& self, const at::Tensor&) { self.step(); }),
             Contains("[runner.step] expected the name of a model, got none, and a runner with `models` alone; call "
                      "step(name)"));
  CHECK_THAT(told([](Wrong& self, const at::Tensor&) { self.step("generater"); }),
             Contains("[runner.step] expected a model that is trained, one of [discriminator, generator], got "
                      "'generater'; did you mean 'generator'?"));
  CHECK_THAT(told([](Wrong& self, const at::Tensor& loss) { self.backward(loss, "critic"); }),
             Contains("[runner.backward] expected a model that is trained, one of [discriminator, generator], got "
                      "'critic'"));
  CHECK_THAT(told([](Wrong&, const at::Tensor&) {}),
             Contains("[runner.train_step] expected one call of step() for each micro-batch, got 0"));
  TinyConfig config = gan_config(folder);
  config.optim.models["generater"].lr = 0.1;
  GanRunner runner(config);
  CHECK_THAT(error_of<dl::ConfigError>([&] { runner.train(); }), Contains("generater") && Contains("generator"));
}

TEST_CASE("TorchRunner: a model that no step updates is one warning, and names of no model are errors", "[runner]") {
  class Forgetful : public GanRunner {
   public:
    using GanRunner::GanRunner;

   protected:
    dl::StepOutput train_step(dl::Batch& batch) override {
      const auto loss = score(models["discriminator"](batch.input), 1.0);
      backward(loss, "discriminator");
      step("discriminator");
      return {{}, loss};
    }
  };
  const Folder folder;
  std::vector<std::string> warnings;
  Forgetful runner(gan_config(folder));
  collect_warnings(runner, warnings);
  runner.train();
  CHECK(warnings == std::vector<std::string>{
                        "model 'generator' was not updated in split 'train'; call backward(loss, \"generator\") and "
                        "step(\"generator\") in train_step, or set optimizers[\"generator\"] = nullptr where it is "
                        "not trained"});

  TinyConfig config = gan_config(folder);
  config.hidden = 9;
  GanRunner misspelt(config);
  misspelt.optimizers["generatr"] = nullptr;
  CHECK(danling_test::error_of<dl::ConfigError>([&] { misspelt.train(); }) ==
        "[runner.build_optimizer] expected in `optimizers` the names of models, [discriminator, generator], got "
        "'generatr'; did you mean 'generator'?");
}

TEST_CASE("TorchRunner: the only model may be stepped more than once for a batch, each time after a backward",
          "[runner]") {
  class Alone : public TinyRunner {
   public:
    explicit Alone(const TinyConfig& config) : TinyRunner(config) {
      model = {};
      criterion = {};
      metrics = nullptr;
      models["critic"] = layers(4, 1, 0.4);
    }
    bool forgets = false;

   protected:
    dl::StepOutput train_step(dl::Batch& batch) override {
      at::Tensor loss;
      for (int i = 0; i < 2; ++i) {
        if (i == 0 || !forgets) {
          loss = models["critic"](batch.input).square().mean();
          backward(loss, "critic");
        }
        step("critic");
      }
      return {{}, loss};
    }
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      return {{}, models["critic"](batch.input).square().mean()};
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  Alone runner(config);
  runner.train();
  CHECK(runner.state().train.global_step == 7);
  CHECK(runner.state_dict().at("models").at("critic").at("updates").integer() == 14);
  config.hidden = 9;
  Alone forgetful(config);
  forgetful.forgets = true;
  CHECK_THAT(
      danling_test::error_of<dl::StateError>([&] { forgetful.train(); }),
      Catch::Matchers::StartsWith("[runner.step] expected a call of backward(loss) in train_step before step()"));
}

TEST_CASE("TorchRunner: a checkpoint with a model that the program has not is refused", "[runner]") {
  class Larger : public GanRunner {
   public:
    explicit Larger(const TinyConfig& config) : GanRunner(config) {
      models["teacher"] = layers(4, 1, 0.2);
      optimizers["teacher"] = nullptr;
    }
  };
  const Folder folder;
  const TinyConfig config = gan_config(folder);
  dl::State saved;
  {
    Larger runner(config);
    runner.train();
    saved = dl::clone(runner.state_dict());
  }
  GanRunner smaller(config);
  CHECK(danling_test::error_of<dl::CheckpointError>([&] { smaller.load_checkpoint(saved); }) ==
        "[runner.load_checkpoint] expected a model 'teacher', as in the checkpoint, got none; put 'models' into "
        "checkpoint.exclude_from_loading, or set `pretrained` to load weights alone");
}

TEST_CASE("TorchRunner: load_named_model may convert what a checkpoint holds of one of several models", "[runner]") {
  class Converting : public GanRunner {
   public:
    using GanRunner::GanRunner;
    std::vector<std::string> loaded;

   protected:
    void load_named_model(const std::string& name, const dl::State& state) override {
      loaded.push_back(name);
      GanRunner::load_named_model(name, state);
    }
  };
  const Folder folder;
  Converting runner(gan_config(folder));
  runner.initialize();
  runner.load_checkpoint(dl::clone(runner.state_dict()));
  CHECK(runner.loaded == std::vector<std::string>{"discriminator", "generator"});
}

}  // namespace
}  // namespace runner_test
