// DeepSpeed's JSON as settings of a runner: arithmetic, mappings, refused keys.
#include <danling/runner/deepspeed_config.hpp>

#include <fstream>

#include "fixture.hpp"
#include "parse.hpp"
#include "runner/deepspeed_keys.hpp"

namespace runner_test {
namespace {

/// A runner's config with `json` as its `deepspeed`.
template <class C = RunnerConfig>
C json_config(const std::string& json) {
  C config;
  config.deepspeed = danling::from_yaml(json, "ds.json");
  return config;
}

template <class C = RunnerConfig>
C folded(const std::string& json, std::int64_t world_size = 1, dl::DeepSpeedNotes* notes = nullptr) {
  return dl::with_deepspeed(json_config<C>(json), world_size, notes);
}

std::string json_error(const std::string& json, std::int64_t world_size = 1) {
  try {
    (void)folded(json, world_size);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no exception";
}

bool any_has(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(), [&](const auto& line) { return line.find(part) != line.npos; });
}

TEST_CASE("deepspeed: the missing one of the three batch sizes is derived, as DeepSpeed does", "[runner][deepspeed]") {
  const auto sizes = [](const std::string& json, std::int64_t world) {
    const auto config = folded(json, world);
    return std::pair(config.dataloader.batch_size.value_or(0), config.accum_steps);
  };
  using Sizes = std::pair<std::int64_t, std::int64_t>;
  CHECK(sizes(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})", 2) == Sizes{4, 8});
  CHECK(sizes(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})", 16) == Sizes{4, 1});
  CHECK(sizes(R"({"train_batch_size": 64})", 4) == Sizes{16, 1});
  CHECK(sizes(R"({"train_micro_batch_size_per_gpu": 3})", 4) == Sizes{3, 1});
  CHECK(sizes(R"({})", 4) == Sizes{0, 1});
  // The file's steps are those that its sizes need.
  CHECK(sizes(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8})",
              2) == Sizes{4, 8});
  auto config = json_config(R"({"train_batch_size": 64})");
  config.accum_steps = 4;
  config = dl::with_deepspeed(config, 2);
  CHECK(config.dataloader.batch_size == 8);
  CHECK(config.accum_steps == 4);
}

TEST_CASE("deepspeed: the config's batch size stands for the file's, and accum_steps counts", "[runner][deepspeed]") {
  auto config = json_config(R"({"train_batch_size": 48})");
  config.dataloader.batch_size = 8;
  config = dl::with_deepspeed(config, 2);
  CHECK(config.accum_steps == 3);
  CHECK(config.deepspeed.at("train_micro_batch_size_per_gpu").integer() == 8);

  dl::DeepSpeedNotes notes;
  const auto forced = folded(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4})", 1, &notes);
  CHECK(forced.accum_steps == 1);
  CHECK(forced.deepspeed.at("gradient_accumulation_steps").integer() == 1);
  CHECK(any_has(notes.warnings,
                "DeepSpeedRunner manages accumulation via config.accum_steps; overriding "
                "deepspeed.gradient_accumulation_steps to 1"));

  // A default of the program gives way, what the user has set does not.
  CHECK(folded<TinyConfig>(R"({"train_micro_batch_size_per_gpu": 2})").dataloader.batch_size == 2);
  auto own = json_config<TinyConfig>(R"({"train_micro_batch_size_per_gpu": 2})");
  own.dataloader.batch_size = 4;
  CHECK(
      error_of<ConfigError>([&] { (void)dl::with_deepspeed(own, 1); }) ==
      "[deepspeed.config] expected 'dataloader.batch_size' to be 2 as 'deepspeed.train_micro_batch_size_per_gpu' sets "
      "it, or unset; got 4");
}

TEST_CASE("deepspeed: batch sizes that contradict each other are an error with the arithmetic", "[runner][deepspeed]") {
  CHECK(json_error(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4})",
                   2) ==
        "[deepspeed.config] expected 'deepspeed.train_batch_size' to be train_micro_batch_size_per_gpu x "
        "gradient_accumulation_steps x processes = 4 x 4 x 2 = 32, got 64");
  CHECK(json_error(R"({"train_batch_size": 50, "train_micro_batch_size_per_gpu": 4})", 2) ==
        "[deepspeed.config] expected 'deepspeed.train_batch_size' to be a multiple of samples of a process x processes "
        "= 4 x 2 = 8, got 50");
  CHECK(
      json_error(R"({"train_batch_size": 50})", 4) ==
      "[deepspeed.config] expected 'deepspeed.train_batch_size' to be a multiple of accum_steps x processes = 1 x 4 = "
      "4, got 50");
  auto config = json_config(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})");
  config.accum_steps = 3;
  CHECK(error_of<ConfigError>([&] { (void)dl::with_deepspeed(config, 2); }) ==
        "[deepspeed.config] expected 'deepspeed.train_batch_size' to be train_micro_batch_size_per_gpu x accum_steps x "
        "processes = 4 x 3 x 2 = 24, got 64");
  CHECK(json_error(R"({"train_batch_size": 0})") ==
        "[deepspeed.config] expected a number above 0 for 'deepspeed.train_batch_size', got 0");
  CHECK(json_error(R"({"train_batch_size": "auto"})") ==
        "[deepspeed.config] expected an integer for 'deepspeed.train_batch_size', got auto, which Hugging Face's "
        "Trainer replaces; write the value");
}

TEST_CASE("deepspeed: precision, clipping and what is reported become settings of the config", "[runner][deepspeed]") {
  auto config = folded(R"({"fp16": {"enabled": true, "initial_scale_power": 10, "loss_scale_window": 50},
      "gradient_clipping": 0.5, "steps_per_print": 20, "dataloader_drop_last": true,
      "tensorboard": {"enabled": true, "output_path": "x"}, "csv_monitor": {"enabled": true},
      "wandb": {"enabled": true, "team": "us", "group": "g"}})");
  CHECK(config.precision == "fp16");
  CHECK(config.scaler.init_scale == 1024);
  CHECK(config.scaler.growth_interval == 50);
  CHECK(config.max_grad_norm == 0.5);
  CHECK(config.log_interval == 20);
  CHECK(config.dataloader.drop_last == true);
  CHECK(config.tensorboard);
  CHECK(config.csv);
  CHECK(config.wandb.enabled);
  CHECK(config.wandb.entity == "us");
  CHECK(config.wandb.group == "g");
  CHECK(config.wandb.project == "deepspeed");

  config = folded(R"({"fp16": {"enabled": true}})");  // DeepSpeed's defaults
  CHECK(config.scaler.init_scale == 65536);
  CHECK(config.scaler.growth_interval == 1000);
  CHECK(config.max_grad_norm == 1);

  config = folded(R"({"bf16": {"enabled": true}, "gradient_clipping": 0})");
  CHECK(config.precision == "bf16");
  CHECK(config.skip_nonfinite_grad);
  CHECK_FALSE(config.max_grad_norm);
  CHECK_FALSE(folded(R"({"bfloat16": {"enabled": true, "check_grad_overflow": false}})").skip_nonfinite_grad);
  CHECK(folded(R"({"torch_autocast": {"enabled": true, "dtype": "float16"}})").precision == "fp16");
  CHECK_FALSE(folded(R"({"fp16": {"enabled": false}, "bf16": {"enabled": false}})").precision);
  CHECK(folded(R"({"communication_data_type": "bf16"})").ddp.comm_hook == "bf16_compress");

  auto own = json_config("{}");
  own.precision = "bf16";  // the other way round
  CHECK(dl::with_deepspeed(own, 1).deepspeed.at("bf16").at("enabled").boolean());
}

TEST_CASE("deepspeed: a fixed loss scale does not change", "[runner][deepspeed]") {
  const auto config = folded(R"({"fp16": {"enabled": true, "loss_scale": 128}})");
  dl::optim::GradScaler scaler(at::kCPU, config.scaler);
  for (int i = 0; i < 3; ++i) {
    scaler.update(torch::ones({}));
    scaler.update(torch::zeros({}));
  }
  CHECK(scaler.get_scale() == 128);
}

TEST_CASE("deepspeed: optimizers have DeepSpeed's names, parameters and defaults", "[runner][deepspeed]") {
  auto adam = folded(R"({"optimizer": {"type": "Adam"}})").optim;
  CHECK(adam.type == "adamw");  // adam_w_mode
  CHECK(adam.lr == 1e-3);
  CHECK(adam.betas == std::pair(0.9, 0.999));
  CHECK(adam.eps == 1e-8);
  CHECK(adam.weight_decay == 0);
  CHECK(folded(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})").optim.type == "adam");
  CHECK(folded(R"({"optimizer": {"type": "AdamW", "params": {"adam_w_mode": false}}})").optim.type == "adamw");
  CHECK_FALSE(folded(R"({"optimizer": {"type": "AdamW", "params": {"torch_adam": true}}})").optim.weight_decay);
  adam = folded(R"({"optimizer": {"type": "AdamW", "params":
      {"lr": 3e-5, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 3e-7, "bias_correction": true}}})")
             .optim;
  CHECK(adam.lr == 3e-5);
  CHECK(adam.betas == std::pair(0.8, 0.99));
  CHECK(adam.eps == 1e-6);
  CHECK(adam.weight_decay == 3e-7);
  const auto lion = folded(R"({"optimizer": {"type": "Lion"}})").optim;
  CHECK(lion.type == "lion");
  CHECK(lion.lr == 1e-3);
  CHECK(lion.betas == std::pair(0.9, 0.999));
  const auto sgd =
      folded<TinyConfig>(R"({"optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": true}}})")
          .optim;
  CHECK(sgd.type == "sgd");
  CHECK(sgd.lr == 0.1);  // the program's default was 0.05
  CHECK(sgd.momentum == 0.9);
  CHECK(sgd.nesterov == true);
  CHECK(folded(R"({"optimizer": {"type": "Adagrad", "params": {"lr_decay": 0.5}}})").optim.lr_decay == 0.5);

  CHECK(json_error(R"({"optimizer": {"type": "Lamb"}})") ==
        "[deepspeed.config] expected an optimizer that is available for 'deepspeed.optimizer.type', got Lamb: "
        "DeepSpeed's "
        "bounds the step by max_coeff and min_coeff; optim.type lamb of the config has no bounds");
  CHECK_THAT(json_error(R"({"optimizer": {"type": "OneBitAdam"}})"),
             EndsWith("got OneBitAdam: DeepSpeed has removed it; ddp.comm_hook of the config compresses gradients with "
                      "stage 0"));
  CHECK_THAT(json_error(R"({"optimizer": {"type": "RMSProp"}})"), EndsWith("got 'RMSProp'; did you mean 'RMSprop'?"));
  CHECK(json_error(R"({"optimizer": {"type": "Adam", "params": {"bias_correction": false}}})") ==
        "[deepspeed.config] expected true for 'deepspeed.optimizer.params.bias_correction', got false, which is not "
        "available: moments are always corrected");
  CHECK(json_error(R"({"optimizer": {"type": "Adam", "params": {"max_grad_norm": 1}}})") ==
        "[deepspeed.config] expected 'deepspeed.gradient_clipping', got 'deepspeed.optimizer.params.max_grad_norm', "
        "which DeepSpeed does not take");
  CHECK(json_error(R"({"optimizer": {"type": "Adam", "params": {"weight_dekay": 1}}})") ==
        "[deepspeed.config] expected a key of DeepSpeed, got 'deepspeed.optimizer.params.weight_dekay'; did you mean "
        "'weight_decay'?");
  auto own = json_config(R"({"optimizer": {"type": "Adam", "params": {"lr": 0.1}}})");
  own.optim.lr = 0.2;
  CHECK(error_of<ConfigError>([&] { (void)dl::with_deepspeed(own, 1); }) ==
        "[deepspeed.config] expected 'optim.lr' to be 0.1 as 'deepspeed.optimizer' sets it, or unset; got 0.2");
}

TEST_CASE("deepspeed: reading a config again changes nothing", "[runner][deepspeed]") {
  const std::string json = R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,
      "gradient_accumulation_steps": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2},
      "optimizer": {"type": "Adam", "params": {"lr": 0.1}}, "steps_per_print": 5,
      "scheduler": {"type": "WarmupLR"}})";
  const auto once = folded<TinyConfig>(json, 2);
  const auto twice = dl::with_deepspeed(once, 2);
  CHECK(danling::to_yaml(danling::to_tree(twice)) == danling::to_yaml(danling::to_tree(once)));
  TinyConfig read;  // as a checkpoint has it
  danling::load_text(read, danling::to_yaml(danling::to_tree(once)), "runner.yaml");
  read = dl::with_deepspeed(read, 2);
  CHECK(danling::canonical_yaml(read) == danling::canonical_yaml(once));
}

TEST_CASE("deepspeed: a file, the command line, and both", "[runner][deepspeed]") {
  const Folder folder;
  const std::string file = (folder.path() / "ds.json").string();
  std::ofstream(file) << R"({"train_batch_size": 16, "zero_optimization": {"reduce_bucket_size": 5e8}})";
  for (const char* option : {"--deepspeed", "--deepspeed_config"}) {
    RunnerConfig config;
    parse_options(config, option, file.c_str());
    CHECK(config.stack == "deepspeed");
    config = dl::with_deepspeed(config, 2);
    CHECK(config.dataloader.batch_size == 8);
    CHECK(config.zero_stage == 0);
    CHECK(config.deepspeed.at("train_batch_size").integer() == 16);
  }
  RunnerConfig config;
  danling::load_text(config, "deepspeed: {zero_optimization: {stage: 1, overlap_comm: true}}", "a.yaml");
  danling::load_text(config, "deepspeed: {gradient_clipping: 2}", "b.yaml");
  danling::set_option(config, "deepspeed.zero_optimization.stage", "3");
  config.stack = "ds";
  config = dl::with_deepspeed(config, 1);
  CHECK(config.stack == "deepspeed");
  CHECK(config.zero_stage == 3);
  CHECK(config.max_grad_norm == 2);

  RunnerConfig text;
  text.deepspeed = "ds.json";
  CHECK(error_of<ConfigError>([&] { danling::set_option(text, "deepspeed.zero_optimization.stage", "3"); }) ==
        "[config.parse] expected a mapping for 'deepspeed' with the key 'zero_optimization.stage', got ds.json "
        "(command line)");
  CHECK(error_of_options("--deepspeed", "[1]") ==
        "[config.parse] expected a mapping, text or null for 'deepspeed', got a list (command line)");
  CHECK(error_of_options("--deepspeed", "a.json", "--stack", "ddp") ==
        "[config.validate] expected 'stack: deepspeed' with 'deepspeed', got ddp");
  text.deepspeed = (folder.path() / "none.json").string();
  CHECK_THAT(error_of<ConfigError>([&] { (void)dl::with_deepspeed(text, 1); }),
             StartsWith("[config.load] expected a readable config file, got "));
}

struct RefusedKey {
  const char* json;
  const char* error;
};

TEST_CASE("deepspeed: what is not available is refused by its name", "[runner][deepspeed]") {
  const RefusedKey table[] = {
      {R"({"zero_optimization": {"stage": 4}})",
       "expected 0, 1, 2 or 3 for 'deepspeed.zero_optimization.stage', got 4"},
      {R"({"zero_optimization": {"offload_optimizer": {"device": "cpu", "pin_memory": true}}})",
       "expected none for 'deepspeed.zero_optimization.offload_optimizer.device', got 'cpu', which is not available; "
       "fsdp.offload_policy of the config keeps parameters, gradients and states on the host, with stage 3"},
      {R"({"zero_optimization": {"offload_param": {"device": "nvme"}}})",
       "expected none for 'deepspeed.zero_optimization.offload_param.device', got 'nvme', which is not available; "
       "fsdp.offload_policy of the config keeps parameters, gradients and states on the host, with stage 3"},
      {R"({"zero_optimization": {"cpu_offload": true}})",
       "expected no 'deepspeed.zero_optimization.cpu_offload', got true, which is not available; fsdp.offload_policy "
       "of "
       "the config keeps parameters, gradients and states on the host, with stage 3"},
      {R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})",
       "expected one of 'deepspeed.fp16.enabled' and 'deepspeed.bf16.enabled', got both"},
      {R"({"bf16": {}, "bfloat16": {}})",
       "expected one of 'deepspeed.bf16' and 'deepspeed.bfloat16', its old name; got both"},
      {R"({"fp16": {"fp16_master_weights_and_grads": true}})",
       "expected no 'deepspeed.fp16.fp16_master_weights_and_grads', got true, which is not available: the optimizer "
       "updates float32 weights"},
      {R"({"bf16": {"bf16_optimizer_states": true}})",
       "expected no 'deepspeed.bf16.bf16_optimizer_states', got true, which is not available: the optimizer updates "
       "float32 weights"},
      {R"({"fp16": {"loss_scale": -1}})",
       "expected 0 (a dynamic scale) or more for 'deepspeed.fp16.loss_scale', got -1.0"},
      {R"({"gradient_clipping": -1})", "expected 0 (no clipping) or more for 'deepspeed.gradient_clipping', got -1.0"},
      {R"({"communication_data_type": "bf16", "zero_optimization": {"stage": 2}})",
       "expected fp32 for 'deepspeed.communication_data_type' with ZeRO stage 2, got bf16, which is available with "
       "stage 0"},
      {R"({"train_bach_size": 8})",
       "expected a key of DeepSpeed, got 'deepspeed.train_bach_size'; did you mean 'train_batch_size'?"},
      {R"({"zero_optimization": {"overlap_com": true}})",
       "expected a key of DeepSpeed, got 'deepspeed.zero_optimization.overlap_com'; did you mean 'overlap_comm'?"},
      {R"({"scheduler": {"type": "WarmupLr"}})",
       "expected one of LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR for "
       "'deepspeed.scheduler.type', got 'WarmupLr'; did you mean 'WarmupLR'?"},
      {R"({"scheduler": {"type": "WarmupDecayLR"}})",
       "expected 'deepspeed.scheduler.params.total_num_steps', got none"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cosine"}}})",
       "expected log or linear for 'deepspeed.scheduler.params.warmup_type', got 'cosine'"},
      {R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1}}})",
       "expected 'deepspeed.scheduler.params.cycle_max_lr', got none"},
  };
  for (const auto& [json, error] : table) {
    CAPTURE(json);
    CHECK(json_error(json) == dl::detail::concat("[deepspeed.config] ", error));
  }
}

/// A value that asks for something.
std::string asking(const dl::detail::DeepSpeedKey& key) {
  return key.neutral == "false" ? "true" : key.neutral == "true" ? "false" : R"({"enabled": true})";
}

TEST_CASE("deepspeed: every key without an option is accepted with a line or refused with its reason, and documented",
          "[runner][deepspeed]") {
  std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/docs/runner/deepspeed.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const auto& key : dl::detail::deepspeed_keys()) {
    const auto json = [&](const std::string& value) {
      const std::string entry = dl::detail::concat("{\"", key.key, "\": ", value, "}");
      return key.section.empty() ? entry : dl::detail::concat("{\"", key.section, "\": ", entry, "}");
    };
    const std::string path = dl::detail::concat("deepspeed.", key.section, key.section.empty() ? "" : ".", key.key);
    CAPTURE(path);
    CHECK(page.find(dl::detail::concat("`", key.key, "`")) != page.npos);
    CHECK(json_error(json("null")) == "no exception");
    if (key.accepted) {
      dl::DeepSpeedNotes notes;
      const auto config = folded(json("1"), 1, &notes);
      CHECK(any_has(notes.info, dl::detail::concat(path, ": ", key.text)));
      auto same = folded("{}");
      same.deepspeed = config.deepspeed;
      CHECK(danling::canonical_yaml(config) == danling::canonical_yaml(same));
    } else {
      CHECK_THAT(json_error(json(asking(key))),
                 StartsWith(dl::detail::concat("[deepspeed.config] expected no '", path, "', got ")) &&
                     EndsWith(dl::detail::concat(", which is not available: ", key.text)));
      CHECK(json_error(json(R"({"enabled": false})")) == "no exception");
      if (!key.neutral.empty()) {
        CHECK(json_error(json(std::string(key.neutral))) == "no exception");
      }
    }
  }
}

TEST_CASE("deepspeed: what its stack refuses is refused before the run", "[runner][deepspeed]") {
  auto config = json_config(R"({"zero_optimization": {"stage": 2}})");
  config.swa.enabled = true;
  CHECK(error_of<ConfigError>([&] { (void)dl::with_deepspeed(config, 1); }) ==
        "[config.validate] expected 'stack: ddp' with 'swa.enabled', got 'stack: fsdp'; unset one of the two");
  config = json_config("{}");
  config.swa.enabled = true;
  CHECK(dl::with_deepspeed(config, 1).zero_stage == 0);
  config = json_config(R"({"zero_optimization": {"stage": 3}})");
  config.fsdp.units = {"Linear"};
  CHECK_NOTHROW(dl::with_deepspeed(config, 1).base_validate());
  config.deepspeed = danling::from_yaml("{}", "ds.json");
  CHECK(error_of<ConfigError>([&] { (void)dl::with_deepspeed(config, 1); }) ==
        "[config.validate] expected 'stack: fsdp' or 'parallel' with 'fsdp.units', got ddp");
  config = json_config("{}");
  config.ft.enabled = true;
  CHECK(error_of<ConfigError>([&] { (void)dl::with_deepspeed(config, 1); }) ==
        "[deepspeed.config] expected 'stack: ddp' with 'ft.enabled', got deepspeed, whose sizes are those of a fixed "
        "number of processes");
  CHECK(json_error(R"({"activation_checkpointing": {"partition_activations": false, "number_checkpoints": null}})") ==
        "no exception");
  CHECK_THAT(json_error(R"({"activation_checkpointing": {"partition_activations": true}})"),
             EndsWith("which is not available: set recompute of the config: names of modules"));
  CHECK(json_error(R"({"data_types": {"grad_accum_dtype": "fp32"}})") == "no exception");
  config = json_config("{}");
  config.parallel.axes.tensor = 2;
  CHECK(error_of<ConfigError>([&] { (void)dl::with_deepspeed(config, 1); }) ==
        "[deepspeed.config] expected 'stack: parallel' with 'parallel.axes', got deepspeed, whose processes all share "
        "the data");
  config = json_config("{}");
  config.stack = "fsdp";
  CHECK(error_of<ConfigError>([&] { (void)dl::with_deepspeed(config, 1); }) ==
        "[deepspeed.config] expected 'stack: deepspeed' for a runner that reads 'deepspeed', got fsdp");
}

TEST_CASE("deepspeed: a runner that does not read the JSON refuses its stack", "[runner][deepspeed]") {
  const Folder folder;
  TinyConfig config(folder);
  config.stack = "deepspeed";
  config.deepspeed = danling::from_yaml("{}", "ds.json");
  TinyRunner runner(config);
  CHECK(error_of<ConfigError>([&] { runner.initialize(); }) ==
        "[runner.stack] expected a runner that reads 'deepspeed' for 'stack: deepspeed', got another; derive it from "
        "dl::DeepSpeedRunner");
}

}  // namespace
}  // namespace runner_test
