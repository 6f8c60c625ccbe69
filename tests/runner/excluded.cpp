// checkpoint.exclude_from_loading: the parts of a checkpoint that a run does not load.
#include "models.hpp"

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

  /// A run that resumes from the checkpoint without `items`, and without the comparison of its config, which differs.
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
    return error_of<dl::ConfigError>([&] { resumed({item}); });
  }

  const dl::State& stored() const { return stored_; }
  /// Weights of the new run before it loads the checkpoint.
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

TEST_CASE("exclude_from_loading: a part of the state keeps the values of the run, and the rest is loaded", "[runner]") {
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

TEST_CASE("exclude_from_loading: a parameter keeps its value, also one that the checkpoint lacks", "[runner]") {
  Excluding run;
  const auto runner = run.resumed({"model.0.weight"});
  const dl::State after = runner->model.state_dict();
  CHECK(at::equal(after.at("0.weight").tensor(), run.before().at("0.weight").tensor()));
  CHECK(at::equal(after.at("0.bias").tensor(), run.stored().at("model").at("0.bias").tensor()));
  CHECK_FALSE(at::equal(after.at("0.weight").tensor(), run.stored().at("model").at("0.weight").tensor()));

  dl::State lacking = run.stored();
  lacking["model"].map().erase("3.bias");
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

TEST_CASE("exclude_from_loading: the state of the optimizer, or one option of a group, keeps its value", "[runner]") {
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
  CHECK(dl::bitwise_equal(state.at("state"), run.stored().at("optimizer").at("state")));
}

TEST_CASE("exclude_from_loading: dataloader.SPLIT and dataloaders.SPLIT exclude the position of a split", "[runner]") {
  Excluding run;
  const auto epoch = [](TinyRunner& runner) { return runner.dataloaders["train"]->state_dict().at("epoch").integer(); };
  const auto taken = run.stored().at("dataloaders").at("train").at("epoch").integer();
  CHECK(taken >= 1);
  CHECK(epoch(*run.resumed({})) == taken);
  CHECK(epoch(*run.resumed({"dataloaders.train"})) == -1);
  CHECK(epoch(*run.resumed({"dataloader.train"})) == -1);
}

TEST_CASE("exclude_from_loading: a name that the checkpoint lacks is an error", "[runner]") {
  Excluding run;
  CHECK(run.refusal("state.rng.torch_cida") ==
        "[runner.load_checkpoint] expected in checkpoint.exclude_from_loading parts of the checkpoint, got "
        "'state.rng.torch_cida'; `danling ckpt show` lists what a checkpoint holds");
  CHECK(run.refusal("optimizer.param_groups.1.lr") ==
        "[runner.load_checkpoint] expected in checkpoint.exclude_from_loading parts of the checkpoint, got "
        "'optimizer.param_groups.1.lr'; `danling ckpt show` lists what a checkpoint holds");
  CHECK(run.refusal("optimiser") ==
        "[runner.load_checkpoint] expected in checkpoint.exclude_from_loading parts of the checkpoint, got "
        "'optimiser'; did you mean 'optimizer'?; `danling ckpt show` lists what a checkpoint holds");
  CHECK_THAT(run.refusal("dataloaders.a"), ContainsSubstring("got 'dataloaders.a'"));
}

TEST_CASE("exclude_from_loading: a run resumes without the optimizer, and `pretrained` loads the weights alone",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  fs::path checkpoints;
  dl::State weights;
  {
    TinyRunner runner(config);
    runner.train();
    checkpoints = runner.workspace().dir() / "checkpoints";
    weights = dl::clone(runner.model.state_dict());
  }
  SECTION("optimizer left out") {
    config.resume = (checkpoints / "latest.pth").string();
    config.checkpoint.exclude_from_loading = {"optimizer", "state.rng"};
    TinyRunner runner(config);
    runner.initialize();
    CHECK(runner.state().train.epoch == 1);
    CHECK(dl::bitwise_equal(weights, runner.model.state_dict()));
    CHECK(runner.optimizer->state_dict().at("state").map().empty());
  }
  SECTION("weights alone") {
    for (const auto* name : {"latest.pth", "model.pth"}) {
      config.pretrained = (checkpoints / name).string();
      config.lineage = "fine";
      TinyRunner runner(config);
      runner.initialize();
      CHECK(runner.state().train.epoch == 0);
      CHECK(dl::bitwise_equal(weights, runner.model.state_dict()));
    }
  }
  SECTION("weights alone cannot be resumed") {
    config.resume = (checkpoints / "model.pth").string();
    TinyRunner runner(config);
    CHECK_THAT(error_of<dl::CheckpointError>([&] { runner.initialize(); }),
               ContainsSubstring("set `pretrained` to load weights"));
  }
}

TEST_CASE("exclude_from_loading: a state that does not fit the changed options names what to leave out", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.sched.type = "cosine";
  const auto part = [](const std::string& name) {
    return "; put '" + name +
           "' into checkpoint.exclude_from_loading to reset it, or set `pretrained` to load only weights";
  };
  {
    TinyRunner runner(config);
    runner.train();
    config.resume = (runner.workspace().dir() / "checkpoints" / "latest.pth").string();
  }
  config.epochs = 2;
  config.checkpoint.exclude_from_loading = {"runner"};
  const auto refusal = [&] {
    TinyRunner runner(config);
    return error_of<dl::CheckpointError>([&] { runner.initialize(); });
  };
  SECTION("another type of schedule") {
    config.sched = {};
    config.sched.type = "reduce_on_plateau";
    CHECK_THAT(refusal(), ContainsSubstring("expected key 'best'") && EndsWith(part("scheduler")));
    config.checkpoint.exclude_from_loading.emplace_back("scheduler");
  }
  SECTION("another optimizer") {
    config.optim.type = "adam";
    CHECK_THAT(refusal(),
               ContainsSubstring("expected the state of Adam, got that of AdamW") && EndsWith(part("optimizer")));
    config.checkpoint.exclude_from_loading.emplace_back("optimizer");
  }
  SECTION("other parameter groups") {
    config.optim.no_decay = true;
    CHECK_THAT(refusal(), StartsWith("[AdamW.load_state_dict] expected ") && EndsWith(part("optimizer")));
    config.checkpoint.exclude_from_loading = {"runner", "optimizer", "scheduler"};
  }
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.state().train.epoch == 2);
}

TEST_CASE("exclude_from_loading: of several models the part of one is named", "[runner]") {
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.epochs = 1;
  {
    GanRunner runner(config);
    runner.train();
    config.resume = (runner.workspace().dir() / "checkpoints" / "latest.pth").string();
  }
  config.epochs = 2;
  config.checkpoint.exclude_from_loading = {"runner"};
  config.optim.models["generator"].type = "adam";
  {
    GanRunner runner(config);
    CHECK_THAT(error_of<dl::CheckpointError>([&] { runner.initialize(); }),
               ContainsSubstring("; put 'models.generator.optimizer' into checkpoint.exclude_from_loading to reset"));
  }
  config.checkpoint.exclude_from_loading.emplace_back("models.generator.optimizer");
  {
    GanRunner runner(config);
    runner.train();
    CHECK(runner.state().train.epoch == 2);
  }
  config.checkpoint.exclude_from_loading = {"runner", "optimizer"};  // of all models
  GanRunner runner(config);
  runner.initialize();
  for (const auto& [name, optimizer] : runner.optimizers) {
    CHECK(optimizer->state_dict().at("state").map().empty());
  }
}

TEST_CASE("exclude_from_loading: without 'runner' and with another learning rate the log says which rate applies",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  const auto latest = trained(config) / "checkpoints" / "latest.pth";
  const Folder other;
  config.workspace_root = other.path().string();
  config.optim.lr = 0.01;
  double lr = 0.05;
  std::string text =
      "optim.lr is 0.05 in the checkpoint and 0.01 here; uses the checkpoint's, restored with 'optimizer' (put "
      "'optimizer' into checkpoint.exclude_from_loading to use the config's)";
  config.checkpoint.exclude_from_loading = {"runner"};
  SECTION("the checkpoint's") {}
  SECTION("the config's") {
    config.checkpoint.exclude_from_loading.push_back("optimizer");
    text = "optim.lr is 0.05 in the checkpoint and 0.01 here; uses the config's";
    lr = 0.01;
  }
  TinyRunner runner(config);
  runner.initialize();
  runner.load_checkpoint(latest);
  CHECK(runner.optimizer->param_groups().front().lr == lr);
  runner.train();  // opens the log
  CHECK(runner.close());
  CHECK_THAT(logs_of(runner.workspace().dir()), ContainsSubstring(text));
}

}  // namespace
}  // namespace runner_test
