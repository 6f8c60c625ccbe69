// DeepSpeedRunner: trained by DeepSpeed's JSON as by this library's config, its tagged checkpoints and their pointers.
#include <danling/runner/deepspeed_runner.hpp>

#include <cstdlib>
#include <fstream>

#include "ddp_runner.hpp"

namespace runner_test {
namespace {

template <class R>
std::string deepspeed_run_numbers(const R& runner) {
  std::string out = "numbers:";
  for (const auto& [name, value] : runner.model.named_state()) {
    const auto all = value.detach().to(at::kDouble).flatten();
    for (std::int64_t i = 0; i < all.numel(); ++i) {
      out += dl::detail::concat(" ", all[i].template item<double>());
    }
  }
  for (const auto& row : runner.results().rows()) {
    for (const char* name : {"train.loss", "train.lr", "val.loss"}) {
      out += dl::detail::concat(" ", row.result.number(name) != nullptr ? *row.result.number(name) : -1.0);
    }
  }
  return out + dl::detail::concat(" ", runner.state().train.global_step);
}

/// TinyRunner's problem for `Base`.
template <class Base>
class PointsOf : public Base {
 public:
  explicit PointsOf(const TinyConfig& config) : Base(config) { fill(config); }
  PointsOf(const TinyConfig& config, std::int64_t world_size) : Base(config, world_size) { fill(config); }
  ~PointsOf() override { this->close(); }
  std::string numbers() {
    const auto exposed = this->gather_full_state(/*writes=*/false);
    return deepspeed_run_numbers(*this);
  }
  std::int64_t stop_at = -1;
  /// In place of the validation loss of each epoch.
  std::vector<double> losses;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (steps_++ == stop_at) this->request_stop();
    return Base::train_step(batch);
  }
  dl::StepOutput evaluate_step(dl::Batch& batch) override {
    auto output = Base::evaluate_step(batch);
    const auto epoch = static_cast<std::size_t>(this->state().train.epoch);
    if (!losses.empty()) output.loss = torch::full({}, losses.at(std::min(epoch, losses.size() - 1)));
    return output;
  }

 private:
  void fill(const TinyConfig& config) {
    this->model = make_tiny_net(config);
    this->criterion = torch::nn::CrossEntropyLoss();
    this->datasets["train"] = Points{make_points(config.records, 0), true};
    this->datasets["val"] = Points{make_points(20, 1000), false};
  }
  std::int64_t steps_ = 0;
};
using JsonRunner = PointsOf<dl::DeepSpeedRunner>;
using TorchPointsRunner = PointsOf<dl::TorchRunner>;

TinyConfig plain_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 3;
  config.checkpoint.export_script = false;
  return config;
}

TinyConfig deepspeed_config(const Folder& folder, const std::string& json = "{}") {
  TinyConfig config = plain_config(folder);
  config.deepspeed = danling::from_yaml(json, "ds.json");
  return config;
}

constexpr auto whole_json = R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 0.1, "zero_optimization": {"stage": 0, "overlap_comm": true},
    "optimizer": {"type": "Adam", "params": {"lr": 0.02, "eps": 1e-6, "weight_decay": 0.1}}})";

void set_the_same(TinyConfig& config, std::int64_t processes) {
  config.dataloader.batch_size = 4;
  config.accum_steps = 4 / processes;
  config.max_grad_norm = 0.1;
  config.optim.lr = 0.02;
  config.optim.betas = {0.9, 0.999};
  config.optim.eps = 1e-6;
  config.optim.weight_decay = 0.1;
}

TEST_CASE("DeepSpeedRunner: trains as a runner with the same settings in this library's config",
          "[runner][deepspeed]") {
  const Folder here, there;
  JsonRunner json(deepspeed_config(here, whole_json));
  json.train();
  TinyConfig config = plain_config(there);
  set_the_same(config, 1);
  TorchPointsRunner plain(config);
  plain.train();
  CHECK(json.numbers() == plain.numbers());
  CHECK(json.parallelism().name() == "single");
  CHECK(json.get_deepspeed_config().at("gradient_accumulation_steps").integer() == 1);
}

TEST_CASE("DeepSpeedRunner: trains in bfloat16, and with a loss scale in float16, as with precision of the config",
          "[runner][deepspeed]") {
  for (const std::string name : {"bf16", "fp16"}) {
    CAPTURE(name);
    const Folder here, there;
    JsonRunner json(deepspeed_config(
        here, dl::detail::concat("{", name, ": {enabled: true}, gradient_clipping: 0, train_batch_size: 8}")));
    json.train();
    TinyConfig config = plain_config(there);
    config.precision = name;
    if (name == "bf16") {
      config.skip_nonfinite_grad = true;
    } else {
      config.scaler.init_scale = 65536;
      config.scaler.growth_interval = 1000;
    }
    TorchPointsRunner plain(config);
    plain.train();
    CHECK(json.numbers() == plain.numbers());
  }
}

TEST_CASE("DeepSpeedRunner: steps the JSON's schedule with each update", "[runner][deepspeed]") {
  const Folder folder;
  JsonRunner runner(deepspeed_config(folder, R"({"optimizer": {"type": "Adam", "params": {"lr": 0.02}},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100, "warmup_type": "linear"}}})"));
  runner.train();
  const std::int64_t updates = runner.state().train.global_step;
  CHECK(updates == 21);
  CHECK(runner.optimizer->param_groups()[0].lr == Approx(0.02 * static_cast<double>(updates - 1) / 100).epsilon(1e-12));
}

/// Trains in processes that meet as a launcher's do.
template <class R>
std::vector<std::string> train_launched(int processes, const TinyConfig& config) {
  const int port = danling_test::free_port();
  return danling_test::run_processes(processes, [&](int rank) {
    const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
    set("RANK", std::to_string(rank));
    set("LOCAL_RANK", std::to_string(rank));
    set("WORLD_SIZE", std::to_string(processes));
    set("LOCAL_WORLD_SIZE", std::to_string(processes));
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(port));
    R runner(config);
    runner.train();
    std::string out = runner.numbers();
    runner.close();
    return out;
  });
}

TEST_CASE("DeepSpeedRunner: two processes at each stage of ZeRO train as the stack that stands for it",
          "[runner][deepspeed]") {
  for (int stage = 0; stage <= 3; ++stage) {
    CAPTURE(stage);
    const Folder here, there;
    TinyConfig json = deepspeed_config(here, whole_json);
    json.dropout = 0;
    danling::set_option(json, "deepspeed.zero_optimization.stage", std::to_string(stage));
    TinyConfig plain = plain_config(there);
    plain.dropout = 0;
    set_the_same(plain, 2);
    plain.stack = stage == 0 ? "ddp" : "fsdp";
    const auto by_json = train_launched<JsonRunner>(2, json);
    const auto by_config = train_launched<TorchPointsRunner>(2, plain);
    CHECK_THAT(by_json[0], StartsWith("numbers:"));
    CHECK(by_json[0] == by_json[1]);
    CHECK(relative_difference(by_json[0], by_config[0]) < 1e-6);
  }
}

fs::path checkpoints_of(JsonRunner& runner) { return runner.workspace().checkpoint_dir(); }

std::string pointed(const fs::path& directory, const std::string& name) {
  std::ifstream file(directory / (name + ".pointer"), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> entries(const fs::path& directory) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(directory)) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

TEST_CASE("DeepSpeedRunner: saves into tagged directories, and pointers name them", "[runner][deepspeed]") {
  const Folder folder;
  JsonRunner runner(deepspeed_config(folder));
  runner.losses = {3, 1, 2};
  runner.train();
  runner.close();
  const auto directory = checkpoints_of(runner);
  CHECK(entries(directory) == std::vector<std::string>{"best.pointer", "ckpt-e000001", "ckpt-e000002", "ckpt-e000003",
                                                       "latest.pointer", "model.pth", "model.safetensors"});
  CHECK(pointed(directory, "latest") == "ckpt-e000003");
  CHECK(pointed(directory, "best") == "ckpt-e000002");
  CHECK(entries(directory / "ckpt-e000002") == std::vector<std::string>{"runner.yaml", "state.pth"});
  TinyConfig written;
  danling::load_config_file(written, (directory / "ckpt-e000002" / "runner.yaml").string());
  CHECK(danling::canonical_yaml(written) == danling::canonical_yaml(runner.config()));
  for (const char* name : {"best.pointer", "best", "ckpt-e000002", ""}) {
    const auto config = dl::read_config<TinyConfig>(directory / name);
    CHECK(config.stack == "deepspeed");
    CHECK(danling::canonical_yaml(config) == danling::canonical_yaml(runner.config()));
  }
  const auto loaded = dl::from_checkpoint<JsonRunner, TinyConfig>(directory / "best");
  CHECK(loaded->state().train.epoch == 2);
  CHECK(runner.checkpoint_manager().checkpoint_health().error_count == 0);
}

TEST_CASE("DeepSpeedRunner: off the interval a save has its own name, and the best state the number of its updates",
          "[runner][deepspeed]") {
  for (const char* mode : {"disabled", "async", "async_with_pinned_mem"}) {
    CAPTURE(mode);
    const Folder folder;
    TinyConfig config = deepspeed_config(folder);
    config.checkpoint.interval = 0;
    config.checkpoint.async_mode = mode;
    JsonRunner runner(config);
    runner.losses = {3, 1, 2};
    runner.train();
    runner.save_checkpoint("named", /*save_best=*/false, /*last_step=*/false, /*force=*/true);
    runner.wait_for_checkpoints();
    const auto directory = checkpoints_of(runner);
    // The first best state went when the second had the pointer.
    CHECK(entries(directory) == std::vector<std::string>{"best.pointer", "ckpt-g000000000014", "latest",
                                                         "latest.pointer", "model.pth", "model.safetensors", "named"});
    CHECK(pointed(directory, "best") == "ckpt-g000000000014");
    CHECK(pointed(directory, "latest") == "named");
    CHECK(runner.checkpoint_manager().checkpoint_health().last_successful_target == "named");
  }
}

TEST_CASE("DeepSpeedRunner: prunes its history, but nothing that a pointer names", "[runner][deepspeed]") {
  const Folder folder;
  TinyConfig config = deepspeed_config(folder);
  config.epochs = 5;
  config.checkpoint.keep_latest_k = 2;
  JsonRunner runner(config);
  runner.losses = {1, 2, 3, 4, 5};
  runner.train();
  const auto directory = checkpoints_of(runner);
  CHECK(pointed(directory, "best") == "ckpt-e000001");
  CHECK(entries(directory) == std::vector<std::string>{"best.pointer", "ckpt-e000001", "ckpt-e000004", "ckpt-e000005",
                                                       "latest.pointer", "model.pth", "model.safetensors"});
}

TEST_CASE("DeepSpeedRunner: a later process keeps the best of the history", "[runner][deepspeed]") {
  const Folder folder;
  TinyConfig config = deepspeed_config(folder);
  config.checkpoint.keep_latest_k = 1;
  config.checkpoint.keep_best_k = 2;
  config.auto_resume = true;
  fs::path directory;
  for (const std::int64_t epochs : {3, 4}) {
    config.epochs = epochs;
    JsonRunner runner(config);
    runner.losses = {1, 2, 3, 4};
    runner.train();
    directory = checkpoints_of(runner);
  }
  CHECK(pointed(directory, "best") == "ckpt-e000001");
  const auto names = entries(directory);
  for (const char* name : {"ckpt-e000001", "ckpt-e000002", "ckpt-e000004"}) {
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  }
  CHECK(std::count(names.begin(), names.end(), "ckpt-e000003") == 0);
}

constexpr auto resumed_json = R"({"train_micro_batch_size_per_gpu": 8,
    "optimizer": {"type": "Adam", "params": {"lr": 0.02}},
    "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 9}}})";

TEST_CASE("DeepSpeedRunner: resumes bit for bit by a pointer, an alias, a directory, a tag or its own name",
          "[runner][deepspeed]") {
  const Folder whole;
  JsonRunner uninterrupted(deepspeed_config(whole, resumed_json));
  uninterrupted.train();
  const std::string expected = uninterrupted.numbers();
  for (const std::string how : {"latest.pointer", "latest", "", "tag", "auto", "bare"}) {
    CAPTURE(how);
    const Folder folder;
    const TinyConfig config = deepspeed_config(folder, resumed_json);
    fs::path directory;
    {
      JsonRunner runner(config);
      runner.stop_at = 10;
      CHECK_THROWS_AS(runner.train(), dl::Stopped);
      runner.close();
      directory = checkpoints_of(runner);
    }
    TinyConfig again = config;
    if (how == "auto") {
      again.auto_resume = true;
    } else if (how == "bare") {
      again.resume = "latest";
    } else {
      again.resume = (how == "tag" ? directory / pointed(directory, "latest") : directory / how).string();
    }
    JsonRunner runner(again);
    runner.train();
    CHECK(runner.numbers() == expected);
  }
}

TEST_CASE("DeepSpeedRunner: two processes with shared parameters resume from one tagged checkpoint",
          "[runner][deepspeed]") {
  const Folder whole, parts;
  TinyConfig config = deepspeed_config(whole, whole_json);
  config.dropout = 0;
  danling::set_option(config, "deepspeed.zero_optimization.stage", "3");
  const auto expected = train_launched<JsonRunner>(2, config);
  config.workspace_root = parts.path().string();
  config.auto_resume = true;
  config.epochs = 1;
  const auto first = train_launched<JsonRunner>(2, config);
  config.epochs = 3;
  const auto resumed = train_launched<JsonRunner>(2, config);
  CHECK_THAT(expected[0], StartsWith("numbers:"));
  CHECK(first[0] != expected[0]);
  CHECK(resumed[0] == resumed[1]);
  CHECK(relative_difference(resumed[0], expected[0]) < 1e-6);
}

TEST_CASE("DeepSpeedRunner: resumes from another run's directory, and adopts its history", "[runner][deepspeed]") {
  const Folder first, second;
  JsonRunner runner(deepspeed_config(first));
  runner.losses = {1, 2, 3};
  runner.train();
  runner.close();
  TinyConfig config = deepspeed_config(second);
  config.resume = (checkpoints_of(runner) / "ckpt-e000002").string();
  JsonRunner resumed(config);
  resumed.losses = {1, 2, 3};
  resumed.train();
  CHECK(resumed.numbers() == runner.numbers());
  CHECK(pointed(checkpoints_of(resumed), "latest") == "ckpt-e000003");
}

TEST_CASE("DeepSpeedRunner: takes the weights of a checkpoint, and of DeepSpeed's own file", "[runner][deepspeed]") {
  const Folder first, second;
  JsonRunner runner(deepspeed_config(first));
  runner.train();
  const auto weights = runner.model.named_state();
  const auto check_equal = [&](const fs::path& path) {
    JsonRunner other(deepspeed_config(second));
    other.load_pretrained(path);
    const auto loaded = other.model.named_state();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      CHECK(at::equal(loaded[i].second, weights[i].second));
    }
  };
  check_equal(checkpoints_of(runner) / "latest");
  check_equal(checkpoints_of(runner) / "model.pth");
  dl::State module = dl::State::Map();
  for (const auto& [name, value] : weights) module[name] = value.detach();
  const fs::path foreign = second.path() / "ds";
  fs::create_directories(foreign / "global_step21");
  dl::save(dl::State(dl::State::Map{{"module", module}, {"global_steps", 21}}),
           foreign / "global_step21" / "weights.pth");
  fs::rename(foreign / "global_step21" / "weights.pth", foreign / "global_step21" / "mp_rank_00_model_states.pt");
  std::ofstream(foreign / "latest") << "global_step21\n";
  check_equal(foreign);
}

TEST_CASE("DeepSpeedRunner: a pointer that is empty, foreign or names nothing is an error", "[runner][deepspeed]") {
  const Folder folder;
  JsonRunner runner(deepspeed_config(folder));
  runner.initialize();
  const auto message = [&](const fs::path& path) {
    return error_of<dl::CheckpointError>([&] { runner.load_checkpoint(path); });
  };
  const auto at = [&](const char* name) { return (folder.path() / name).string(); };
  std::ofstream(at("empty.pointer")) << " \n";
  std::ofstream(at("gone.pointer")) << "ckpt-e000009\n";
  std::ofstream(at("outside.pointer")) << "../x";
  fs::create_directories(folder.path() / "bare");
  CHECK(message(at("empty.pointer")) ==
        dl::detail::concat("[deepspeed.checkpoint] expected the name of a checkpoint in the pointer '",
                           at("empty.pointer"), "', got an empty file"));
  CHECK(message(at("gone")) == dl::detail::concat("[deepspeed.checkpoint] expected the checkpoint '",
                                                  at("ckpt-e000009"), "', which '", at("gone.pointer"),
                                                  "' names, got none"));
  CHECK(message(at("outside.pointer")) ==
        dl::detail::concat("[deepspeed.checkpoint] expected the name of a directory in the pointer '",
                           at("outside.pointer"), "', got other text"));
  CHECK(message(at("none")) ==
        dl::detail::concat("[deepspeed.checkpoint] expected a checkpoint, a pointer or a directory of "
                           "checkpoints, got '",
                           at("none"), "', which does not exist"));
  CHECK(message(at("bare")) ==
        dl::detail::concat("[deepspeed.checkpoint] expected state.pth in '", at("bare"), "', got none"));
}

TEST_CASE("DeepSpeedRunner: a damaged newest checkpoint is skipped, and a save that dies leaves the pointers",
          "[runner][deepspeed]") {
  const Folder folder;
  TinyConfig config = deepspeed_config(folder);
  config.epochs = 2;
  JsonRunner runner(config);
  runner.train();
  runner.close();
  const auto directory = checkpoints_of(runner);
  fs::resize_file(directory / "ckpt-e000002" / "state.pth", 1000);
  fs::create_directories(directory / ".ckpt-e000003.tmp-1");
  config.auto_resume = true;
  config.epochs = 3;
  JsonRunner resumed(config);
  resumed.train();
  CHECK(resumed.state().train.epoch == 3);
  CHECK(pointed(directory, "latest") == "ckpt-e000003");
  CHECK_FALSE(fs::exists(directory / ".ckpt-e000003.tmp-1"));
}

TEST_CASE("DeepSpeedRunner: a failed save leaves earlier checkpoints and is reported", "[runner][deepspeed]") {
  const Folder folder;
  dl::CheckpointOptions options;
  options.directory = folder.path() / "checkpoints";
  options.interval = 1;
  bool fails = false;
  auto store = dl::deepspeed_file_store();
  const auto write = store.write;
  store.write = [&](const dl::State& state, const fs::path& place) {
    write(state, place);
    if (fails) throw dl::CheckpointError("the disk is full");
  };
  const auto state = [] { return dl::State(dl::State::Map{{"model", dl::State::Map{{"w", torch::ones({2})}}}}); };
  dl::DeepSpeedCheckpointManager manager(
      options, state, state, [] { return std::string("stack: deepspeed\n"); }, store);
  CHECK(manager.save_checkpoint({.epoch = 0}));
  fails = true;
  CHECK(error_of<dl::CheckpointError>([&] { manager.save_checkpoint({.epoch = 1, .is_best = true}); }) ==
        "the disk is full");
  CHECK(entries(options.directory) == std::vector<std::string>{"ckpt-e000001", "latest.pointer"});
  CHECK(pointed(options.directory, "latest") == "ckpt-e000001");
  const auto health = manager.checkpoint_health();
  CHECK(health.last_failed_target == "ckpt-e000002");
  CHECK(health.failing.contains("latest"));
  CHECK(health.failing.contains("best"));
  fails = false;
  CHECK(manager.save_checkpoint({.epoch = 1, .is_best = true}));
  CHECK(manager.checkpoint_health().failing.empty());
  CHECK(pointed(options.directory, "best") == "ckpt-e000002");
  CHECK(error_of<dl::ConfigError>([&] { manager.save_checkpoint({.name = "best", .force = true}); }) ==
        "[checkpoint.save] expected a name that is not reserved (best, ckpt-...), got 'best'");
}

}  // namespace
}  // namespace runner_test
