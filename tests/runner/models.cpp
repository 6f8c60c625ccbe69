// Several models: losses, modes and steps of each.
#include "models.hpp"

#include <set>

#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("models: two models train by a loss each, as in a plain loop of LibTorch", "[runner]") {
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

TEST_CASE("models: a model without an optimizer is saved and does not change", "[runner]") {
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

TEST_CASE("models: all evaluate in evaluation mode, and those with an optimizer train in training mode", "[runner]") {
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

TEST_CASE("models: the loss of one model does not change the gradients of the others", "[runner]") {
  // The main model's loss goes through the critic, whose window is open; the loss of the critic has a gradient of 0.
  class Through : public TinyRunner {
   public:
    explicit Through(const TinyConfig& config) : TinyRunner(config) {
      auto critic = layers(3, 1, 0.4);
      critic->parameters()[0].requires_grad_(false);  // partly frozen
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

TEST_CASE("models: a single model takes several steps for a batch, each after a backward", "[runner]") {
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
  CHECK_THAT(error_of<dl::StateError>([&] { forgetful.train(); }),
             StartsWith("[runner.step] expected a call of backward(loss) in train_step before step()"));
}

}  // namespace
}  // namespace runner_test
