// Several models in checkpoints and pretrained weights.
#include "fixture.hpp"
#include "models.hpp"

namespace runner_test {
namespace {

TEST_CASE("models: with windows of several lengths and schedules a run resumes bit for bit", "[runner]") {
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
      CHECK(runner.state().train.micro_step % 6 == 0);  // all windows are closed
    }
    config.auto_resume = true;
    GanRunner runner(config);
    runner.train();
    CHECK(runner.close());
    check_same(expected, outcome_of(runner.workspace().dir()));
  }
}

TEST_CASE("models: load_pretrained loads the weights of all models from an exported file", "[runner]") {
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

TEST_CASE("models: a run that rolls back to a checkpoint equals one that does not", "[runner]") {
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

TEST_CASE("models: a checkpoint with a model that the program lacks is an error", "[runner]") {
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
  CHECK(error_of<dl::CheckpointError>([&] { smaller.load_checkpoint(saved); }) ==
        "[runner.load_checkpoint] expected a model 'teacher', as in the checkpoint, got none; put 'models' into "
        "checkpoint.exclude_from_loading, or set `pretrained` to load only weights");
}

TEST_CASE("models: load_named_model is called for each model of a checkpoint", "[runner]") {
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
