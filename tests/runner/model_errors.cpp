// Several models: wrong names, and a model that no step updates.
#include "fixture.hpp"
#include "models.hpp"

namespace runner_test {
namespace {

TEST_CASE("models: wrong names in step, backward and optim are errors with the right ones", "[runner]") {
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
  const auto error_after = [&](const std::function<void(Wrong&, const at::Tensor&)>& act) {
    Wrong runner(gan_config(folder), act);
    return error_of<dl::Error>([&] { runner.train(); });
  };
  CHECK_THAT(
      error_after([](Wrong& self, const at::Tensor&) { self.step(); }),
      ContainsSubstring(
          "[runner.step] expected the name of a model, got none in a runner with only `models`; call step(name)"));
  CHECK_THAT(error_after([](Wrong& self, const at::Tensor&) { self.step("generater"); }),
             ContainsSubstring("[runner.step] expected a model that is trained, one of [discriminator, generator], got "
                               "'generater'; did you mean 'generator'?"));
  CHECK_THAT(
      error_after([](Wrong& self, const at::Tensor& loss) { self.backward(loss, "critic"); }),
      ContainsSubstring("[runner.backward] expected a model that is trained, one of [discriminator, generator], got "
                        "'critic'"));
  CHECK_THAT(error_after([](Wrong& self, const at::Tensor& loss) { self.backward(loss); }),
             ContainsSubstring("[runner.backward] expected the name of a model, got none in a runner with only "
                               "`models`; call backward(loss, name)"));
  CHECK_THAT(error_after([](Wrong&, const at::Tensor&) {}),
             ContainsSubstring("[runner.train_step] expected one call of step() for each micro-batch, got 0"));
  TinyConfig config = gan_config(folder);
  config.optim.models["generater"].lr = 0.1;
  GanRunner runner(config);
  CHECK_THAT(error_of<dl::ConfigError>([&] { runner.train(); }),
             ContainsSubstring("generater") && ContainsSubstring("generator"));
}

TEST_CASE("models: a model that no step updates is one warning, and an optimizer without a model an error",
          "[runner]") {
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
  TinyConfig config = gan_config(folder);
  config.dataloader.drop_last = true;
  Forgetful runner(config);
  collect_warnings(runner, warnings);
  runner.train();
  CHECK(warnings == std::vector<std::string>{
                        "model 'generator' was not updated in split 'train'; call backward(loss, \"generator\") and "
                        "step(\"generator\") in train_step, or set optimizers[\"generator\"] = nullptr where it is "
                        "not trained"});

  config = gan_config(folder);
  config.hidden = 9;
  GanRunner misspelt(config);
  misspelt.optimizers["generatr"] = nullptr;
  CHECK(error_of<dl::ConfigError>([&] { misspelt.train(); }) ==
        "[runner.build_optimizer] expected in `optimizers` names of models, one of [discriminator, generator], got "
        "'generatr'; did you mean 'generator'?");
}

}  // namespace
}  // namespace runner_test
