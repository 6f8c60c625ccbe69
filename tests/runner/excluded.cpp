#include "fixture.hpp"

namespace runner_test {
namespace {

class Excluding {
 public:
  Excluding() : config_(folder_) {
    config_.epochs = 2;
    TinyRunner runner(config_);
    runner.train();
    latest_ = runner.workspace().dir() / "checkpoints" / "latest.pth";
    stored_ = dl::load_file(latest_);
    config_.workspace_root = other_.path().string();
    config_.seed = 8;
    config_.optim.lr = 0.01;
  }

  /// A run that goes on from the checkpoint without `items`. Its config differs, which is why it is not compared.
  std::unique_ptr<TinyRunner> resumed(std::vector<std::string> items) {
    items.emplace_back("runner");
    config_.checkpoint.exclude_from_loading = std::move(items);
    config_.resume = latest_.string();
    auto runner = std::make_unique<TinyRunner>(config_);
    before_ = dl::clone(runner->model.state_dict());
    generator_ = at::detail::getDefaultCPUGenerator().get_state();
    runner->initialize();
    return runner;
  }

  std::string refusal(const std::string& item) {
    return danling_test::error_of<dl::ConfigError>([&] { resumed({item}); });
  }

  const dl::State& stored() const { return stored_; }
  /// Of the run before it was restored.
  const dl::State& before() const { return before_; }
  const at::Tensor& generator() const { return generator_; }

 private:
  Folder folder_, other_;
  TinyConfig config_;
  fs::path latest_;
  dl::State stored_, before_;
  at::Tensor generator_;
};

at::Tensor default_generator() { return at::detail::getDefaultCPUGenerator().get_state(); }

TEST_CASE("exclude_from_loading: a part of the state stays as the run has it, and the rest is restored", "[runner]") {
  Excluding run;
  SECTION("the generators of devices") {
    const auto runner = run.resumed({"state.rng.torch_cuda"});
    CHECK(runner->state().train.epoch == 2);
    CHECK(at::equal(default_generator(), run.stored().at("state").at("rng").at("torch_cpu").tensor()));
  }
  SECTION("the generator of the CPU") {
    const auto runner = run.resumed({"state.rng.torch_cpu"});
    CHECK(runner->state().train.epoch == 2);
    CHECK(at::equal(default_generator(), run.generator()));
  }
  SECTION("counters, all and one") {
    CHECK(run.resumed({"state.train"})->state().train.global_step == 0);
    const auto runner = run.resumed({"state.train.epoch"});
    CHECK(runner->state().train.epoch == 0);
    CHECK(runner->state().train.global_step == 14);
  }
  SECTION("results and the place in the epoch") {
    const auto runner = run.resumed({"results", "loop", "callbacks"});
    CHECK(runner->results().latest() == nullptr);
    CHECK(runner->state().train.epoch == 2);
  }
}

TEST_CASE("exclude_from_loading: one parameter, also one that the checkpoint lacks, stays as the model has it",
          "[runner]") {
  Excluding run;
  const auto runner = run.resumed({"model.0.weight"});
  const dl::State after = runner->model.state_dict();
  CHECK(at::equal(after.at("0.weight").tensor(), run.before().at("0.weight").tensor()));
  CHECK(at::equal(after.at("0.bias").tensor(), run.stored().at("model").at("0.bias").tensor()));
  CHECK_FALSE(at::equal(after.at("0.weight").tensor(), run.stored().at("model").at("0.weight").tensor()));

  dl::State lacking = run.stored();
  lacking["model"].map().erase("3.bias");
  const dl::State kept = dl::clone(runner->model.state_dict());
  auto again = run.resumed({"model.3.bias"});
  at::Tensor bias = again->model.state_dict().at("3.bias").tensor();
  {
    const at::NoGradGuard guard;
    bias.fill_(3);
  }
  again->load_checkpoint(lacking);
  CHECK(at::equal(again->model.state_dict().at("3.bias").tensor(), at::full({3}, 3.0)));
  CHECK(at::equal(again->model.state_dict().at("0.weight").tensor(), run.stored().at("model").at("0.weight").tensor()));
}

TEST_CASE("exclude_from_loading: moments, or one option of a group, of the optimizer", "[runner]") {
  Excluding run;
  CHECK(run.resumed({})->optimizer->state_dict().at("param_groups").list()[0].at("lr").number() == 0.05);
  {
    const auto runner = run.resumed({"optimizer.state"});
    const dl::State state = runner->optimizer->state_dict();
    CHECK(state.at("state").map().empty());
    CHECK(state.at("param_groups").list()[0].at("lr").number() == 0.05);
  }
  const auto runner = run.resumed({"optimizer.param_groups.0.lr"});
  const dl::State state = runner->optimizer->state_dict();
  CHECK(state.at("param_groups").list()[0].at("lr").number() == 0.01);
  CHECK(dl::identical(state.at("state"), run.stored().at("optimizer").at("state")));
}

TEST_CASE("exclude_from_loading: the position of one split, by each of its names", "[runner]") {
  Excluding run;
  const auto epoch = [](TinyRunner& runner) { return runner.dataloaders["train"]->state_dict().at("epoch").integer(); };
  const auto taken = run.stored().at("dataloaders").at("train").at("epoch").integer();
  CHECK(taken >= 1);
  CHECK(epoch(*run.resumed({})) == taken);
  CHECK(epoch(*run.resumed({"dataloaders.train"})) == -1);
  CHECK(epoch(*run.resumed({"dataloader.train"})) == -1);
}

TEST_CASE("exclude_from_loading: what neither the checkpoint nor the run has is refused", "[runner]") {
  Excluding run;
  CHECK(run.refusal("state.rng.torch_cida") ==
        "[runner.load_checkpoint] expected in checkpoint.exclude_from_loading what the checkpoint holds, got "
        "'state.rng.torch_cida'; `danling ckpt show` lists what a checkpoint holds");
  CHECK(run.refusal("optimizer.param_groups.1.lr") ==
        "[runner.load_checkpoint] expected in checkpoint.exclude_from_loading what the checkpoint holds, got "
        "'optimizer.param_groups.1.lr'; `danling ckpt show` lists what a checkpoint holds");
}

TEST_CASE("TorchRunner: each component of a checkpoint goes through a hook of its own, once, in order", "[runner]") {
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
