#include <danling/config/tree.hpp>
#include <danling/runner/runner_config.hpp>
#include <sstream>
#include <support/error.hpp>

namespace {

using danling::ConfigError;
using danling::RunnerConfig;
using danling_test::error_of;

/// DanLing's keys with their defaults as YAML, from its documentation of RunnerConfig and from the keys that its code
/// reads without declaring them.
struct SpecifiedKey {
  const char* key;
  const char* value;
};

constexpr SpecifiedKey specified[] = {
    {"stack", "auto"},
    {"seed", "null"},
    {"deterministic", "false"},
    {"steps", "null"},
    {"epochs", "null"},
    {"accum_steps", "1"},
    {"score_split", "null"},
    {"score_name", "loss"},
    {"workspace_root", "experiments"},
    {"auto_resume", "false"},
    {"resume", "null"},
    {"pretrained", "null"},
    {"lineage", "lin"},
    {"experiment", "exp"},
    {"log", "true"},
    {"tensorboard", "false"},
    {"log_interval", "null"},
    {"sched.interval", "null"},
    {"sched.monitor", "null"},
    {"optim.type", "null"},
    {"optim.lr", "null"},
    {"optim.weight_decay", "null"},
    {"optim.betas", "null"},
    {"optim.param_groups", "null"},
    {"checkpoint.dir_name", "checkpoints"},
    {"checkpoint.async_enabled", "true"},
    {"checkpoint.async_mode", "null"},
    {"checkpoint.dedicated_async_process_group", "true"},
    {"checkpoint.async_process_group_backend", "gloo"},
    {"checkpoint.backend", "auto"},
    {"checkpoint.wait_timeout", "null"},
    {"checkpoint.interval", "null"},
    {"checkpoint.keep_latest_k", "0"},
    {"checkpoint.load_only", "false"},
    {"checkpoint.enable_ft_dataloader_checkpoints", "false"},
    {"checkpoint.ft_replica_id", "null"},
    {"checkpoint.ft_dataloader_checkpoint_prefix", "ft-replica"},
    {"checkpoint.exclude_from_loading", "[]"},
    {"checkpoint.last_save_model_only", "false"},
    {"checkpoint.export_dtype", "null"},
    {"parallel.axes.replicate", "1"},
    {"parallel.axes.shard", "1"},
    {"parallel.axes.context", "1"},
    {"parallel.axes.pipeline", "1"},
    {"parallel.axes.tensor", "1"},
    {"parallel.axes.expert", "1"},
    {"parallel.axes.expert_tensor", "1"},
    {"parallel.pipeline_schedule", "'1F1B'"},
    {"parallel.pipeline_microbatch_size", "1"},
    {"parallel.pipeline_n_microbatches", "null"},
    {"parallel.module_fqns_per_model_part", "null"},
    {"parallel.use_device_mesh", "true"},
    {"parallel.mesh_device_type", "null"},
    {"parallel.allow_degree_change", "false"},
    {"wandb.enabled", "false"},
    {"wandb.project", "null"},
    {"wandb.entity", "null"},
    {"wandb.group", "null"},
    {"wandb.name", "null"},
    {"wandb.job_type", "null"},
    {"wandb.tags", "[]"},
    {"wandb.dir", "null"},
    {"wandb.mode", "null"},
    {"ft.enabled", "false"},
    {"ft.process_group", "gloo"},
    {"ft.process_group_timeout_ms", "10000"},
    {"ft.replica_id", "0"},
    {"ft.group_size", "1"},
    {"ft.min_replica_size", "1"},
    {"dataloader.batch_size", "null"},
    {"dataloader.shuffle", "null"},
    {"dataloader.drop_last", "null"},
    {"dataloader.num_workers", "null"},
    {"dataloader.persistent_workers", "null"},
    {"dataloader.prefetch_factor", "null"},
    {"dataloader.pin_memory", "null"},
    {"dataloader.in_order", "null"},
    {"dataloader.snapshot_every_n_steps", "null"},
    {"fsdp.enabled", "false"},
    {"fsdp.mesh", "null"},
    {"fsdp.reshard_after_forward", "null"},
    {"fsdp.shard_placement_fn", "null"},
    {"fsdp.mp_policy", "null"},
    {"fsdp.offload_policy", "null"},
    {"fsdp.ignored_params", "null"},
    {"compile.enable", "false"},
    {"compile.backend", "null"},
    {"compile.fullgraph", "null"},
    {"compile.dynamic", "null"},
    {"compile.mode", "null"},
    {"compile.options", "null"},
    {"compile.optimize_ddp", "ddp_optimizer"},
    {"compile.precompile_artifact_dir", "null"},
    {"compile.memory_policy", "null"},
    {"comm.init_timeout_seconds", "null"},
    {"comm.train_timeout_seconds", "null"},
    {"gc.interval", "null"},
    {"gc.generation", "1"},
    {"gc.disable_automatic", "true"},
    {"profiling.enabled", "false"},
    {"profiling.wait", "1"},
    {"profiling.warmup", "1"},
    {"profiling.active", "3"},
    {"profiling.repeat", "null"},
    {"profiling.record_shapes", "false"},
    {"profiling.profile_memory", "false"},
    {"profiling.with_stack", "false"},
    {"profiling.with_flops", "false"},
    {"profiling.trace_dir", "profiles"},
    {"heartbeat.enabled", "false"},
    {"heartbeat.interval_seconds", "60.0"},
    {"heartbeat.dir_name", "heartbeats"},
    // Read without being declared.
    {"name", "null"},
    {"backend", "null"},
    {"init_method", "null"},
    {"precision", "null"},
    {"max_grad_value", "null"},
    {"max_grad_norm", "null"},
    {"skip_nonfinite_grad", "false"},
    {"patience", ".inf"},
    {"train_splits", "null"},
    {"evaluate_splits", "null"},
    {"deepspeed", "null"},
    {"fp8.enabled", "null"},
    // Arguments of LRScheduler.
    {"sched.type", "null"},
    {"sched.total_steps", "null"},
    {"sched.final_lr_ratio", "null"},
    {"sched.final_lr", "null"},
    {"sched.min_lr", "null"},
    {"sched.warmup_steps", "null"},
    {"sched.cooldown_steps", "null"},
    {"sched.scaling", "null"},
};

/// `a.b: value` as the nested YAML text that to_yaml writes for it.
std::string nested_yaml(const danling::ConfigTree& tree, const std::string& key) {
  const danling::ConfigTree* at = &tree;
  std::size_t begin = 0;
  while (at != nullptr) {
    const auto dot = key.find('.', begin);
    at = at->find(key.substr(begin, dot == std::string::npos ? dot : dot - begin));
    if (dot == std::string::npos) break;
    begin = dot + 1;
  }
  return at == nullptr ? "no such key" : danling::to_yaml(*at);
}

template <class... Words>
std::string error_of_options(const Words*... words) {
  RunnerConfig config;
  const char* argv[] = {"program", words...};
  return error_of<ConfigError>([&] { (void)danling::parse(config, 1 + sizeof...(words), argv); });
}

template <class C, class... Words>
void parse_options(C& config, const Words*... words) {
  const char* argv[] = {"program", words...};
  REQUIRE_FALSE(danling::parse(config, 1 + sizeof...(words), argv));
}

TEST_CASE("RunnerConfig: has every key of DanLing with its default", "[runner]") {
  const danling::ConfigTree tree = danling::to_tree(RunnerConfig());
  for (const auto& [key, value] : specified) {
    CAPTURE(key);
    CHECK(nested_yaml(tree, key) == std::string(value) + "\n");
  }
}

TEST_CASE("RunnerConfig: the default of every key is accepted when written out", "[runner]") {
  for (const auto& [key, value] : specified) {
    CAPTURE(key);
    RunnerConfig config;
    danling::load_text(config, danling::concat(key, ": ", value, "\n"), "a.yaml");
    danling::finish(config);
  }
  RunnerConfig config;
  danling::load_text(config, danling::to_yaml(danling::to_tree(RunnerConfig())), "full.yaml");
  danling::finish(config);
  CHECK(danling::differences(danling::to_tree(config), danling::to_tree(RunnerConfig())).empty());
}

TEST_CASE("RunnerConfig: a key whose feature is missing is refused by name", "[runner]") {
  CHECK(error_of_options("--tensorboard") ==
        "[config.parse] expected 'tensorboard' to keep its default false, got 'true' (command line); "
        "not available in this release: TensorBoard");
  CHECK(error_of_options("--gc.interval", "10") ==
        "[config.parse] expected 'gc.interval' to keep its default null, got '10' (command line); "
        "not available in this release: pacing of Python's garbage collector, which C++ does not have");
  CHECK(error_of_options("--deepspeed.zero_optimization.stage", "2") ==
        "[config.parse] expected 'deepspeed' to keep its default null, got key 'zero_optimization.stage' "
        "(command line); not available in this release: DeepSpeed, which is Python's");
  CHECK(error_of_options("--stack", "deepspeed") ==
        "[config.parse] expected a value that this release supports for 'stack', got 'deepspeed': not available: "
        "DeepSpeed, which is Python's (command line)");
  CHECK(error_of_options("--precision", "fp16") ==
        "[config.parse] expected a value that this release supports for 'precision', got 'fp16': not available: "
        "fp16, which needs gradient scaling (command line)");

  // Every key of these sections, whatever sets it.
  for (const auto& [key, value] : specified) {
    const std::string name = key;
    const std::string section = name.substr(0, name.find('.'));
    for (const char* missing : {"wandb", "ft", "fsdp", "parallel", "compile", "comm", "gc", "profiling", "heartbeat"}) {
      if (section == missing) {
        CAPTURE(name);
        RunnerConfig config;
        CHECK_THAT(error_of<ConfigError>([&] { danling::apply(config, name, "-77"); }),
                   ContainsSubstring("not available in this release"));
      }
    }
  }
}

TEST_CASE("RunnerConfig: the metric of a schedule that needs one can be set", "[runner]") {
  RunnerConfig config;
  const std::string id = danling::config_id(config);
  parse_options(config, "--sched.monitor", "val.acc");
  CHECK(config.sched.monitor == "val.acc");
  CHECK(danling::config_id(config) != id);
}

TEST_CASE("RunnerConfig: saves are asynchronous by default, and any of DanLing's modes is accepted", "[runner]") {
  RunnerConfig config;
  CHECK(config.checkpoint.async_enabled);
  parse_options(config, "--checkpoint.async_enabled", "false", "--checkpoint.async_mode", "async_with_pinned_mem");
  CHECK_FALSE(config.checkpoint.async_enabled);
  CHECK(config.checkpoint.async_mode == "async_with_pinned_mem");
  CHECK(error_of_options("--checkpoint.async_mode", "pinned") ==
        "[config.parse] expected one of disabled, async, async_with_pinned_mem for 'checkpoint.async_mode', got "
        "'pinned' (command line)");
  CHECK(error_of_options("--checkpoint.on_error", "ignore") ==
        "[config.parse] expected one of continue, stop for 'checkpoint.on_error', got 'ignore' (command line)");
}

TEST_CASE("RunnerConfig: names may be written in any case, and a field's own none is no null", "[runner]") {
  RunnerConfig config;
  parse_options(config, "--checkpoint.async_mode", "Disabled", "--precision", "BFloat16", "--checkpoint.export_dtype",
                "float", "--metrics.type", "multiclass", "--metrics.num_classes", "3", "--metrics.average", "None");
  CHECK(config.checkpoint.async_mode == "disabled");
  CHECK(config.precision == "bfloat16");
  CHECK(config.checkpoint.export_dtype == "float");
  CHECK(config.metrics.average == "none");
  RunnerConfig other;
  parse_options(other, "--device", "CUDA:1", "--optim.type", "AdamW", "--sched.interval", "Epoch", "--sched.scaling",
                "NUMERICAL", "--checkpoint.on_error", "Stop", "--checkpoint.backend", "FILE", "--stack", "DDP",
                "--allocator", "System", "--metrics.mode", "Stream", "--metrics.scores", "Logits");
  CHECK(other.device == "cuda:1");
  CHECK(other.optim.type == "adamw");
  CHECK(other.sched.interval == "epoch");
  CHECK(other.sched.scaling == "numerical");
  CHECK(other.checkpoint.on_error == "stop");
  CHECK(other.checkpoint.backend == "file");
  CHECK(other.stack == "ddp");
  CHECK(other.allocator == "system");
  CHECK(other.metrics.mode == "stream");
  CHECK(other.metrics.scores == "logits");
  CHECK_THAT(error_of_options("--precision", "FP16"), ContainsSubstring("not available: fp16, which needs"));
}

TEST_CASE("RunnerConfig: an optimizer's name in another case makes no other run", "[runner]") {
  RunnerConfig config;
  parse_options(config, "--optim.type", "adamW", "--sched.type", "Cosine");
  RunnerConfig other;
  parse_options(other, "--optim.type", "adamw", "--sched.type", "cosine");
  CHECK(danling::canonical(config) == danling::canonical(other));
}

TEST_CASE("RunnerConfig: contradicting or impossible settings are refused", "[runner]") {
  CHECK(error_of_options("--epochs", "3", "--steps", "5") ==
        "[config.validate] expected at most one of 'steps' and 'epochs', got steps 5 and epochs 3");
  CHECK(error_of_options("--accum_steps", "0") ==
        "[config.parse] expected a value of at least 1 for 'accum_steps', got 0 (command line)");
  CHECK(error_of_options("--device", "gpu") ==
        "[config.validate] expected auto, cpu, cuda or cuda:<index> for 'device', got 'gpu'");
  CHECK(error_of_options("--device", "cuda:") ==
        "[config.validate] expected auto, cpu, cuda or cuda:<index> for 'device', got 'cuda:'");
  CHECK(error_of_options("--optim.betas", "0.9") ==
        "[config.parse] expected a list of two numbers or null for 'optim.betas', got a list of 1 (command line)");
  CHECK(error_of_options("--optim.param_groups", "[{lr: 1}]") ==
        "[config.validate] expected a pattern for 'optim.param_groups[0]', got none");
  CHECK(error_of_options("--optim.param_groups", "[{pattern: a, betas: [0.9]}]") ==
        "[config.parse] expected a list of two numbers or null for 'optim.param_groups[0].betas', got a list of 1 "
        "(command line)");
  CHECK(error_of_options("--sched.final_lr", "1e-5", "--sched.final_lr_ratio", "0.1") ==
        "[config.validate] expected at most one of 'sched.final_lr_ratio' and 'sched.final_lr', got both");
  CHECK(error_of_options("--dataloader.batch_size", "0") ==
        "[config.parse] expected a value of at least 1 for 'dataloader.batch_size', got 0 (command line)");
  CHECK(error_of_options("--max_grad_norm", "0") ==
        "[config.parse] expected a value above 0 for 'max_grad_norm', got 0.0 (command line)");
  CHECK(error_of_options("--lr", "3") ==
        "[config.parse] expected a known key, got 'lr' (command line); did you mean 'optim.lr'?");
}

TEST_CASE("RunnerConfig: DanLing's other names for optim and sched", "[runner]") {
  RunnerConfig config;
  parse_options(config, "--optimizer.lr", "0.5", "--scheduler.type", "linear");
  CHECK(config.optim.lr == 0.5);
  CHECK(config.sched.type == "linear");
  parse_options(config, "--device", "cuda:1", "--precision", "bfloat16");
  CHECK(config.device == "cuda:1");
  CHECK(config.precision_name() == "bf16");
  CHECK(config.stack_name() == "ddp");
}

TEST_CASE("RunnerConfig: every loader option of a split wins over the common one", "[runner]") {
  RunnerConfig config;
  parse_options(config, "--dataloader.num_workers", "2", "--dataloader.prefetch_factor", "3",
                "--dataloader.persistent_workers", "true", "--dataloader.pin_memory", "true", "--dataloader.in_order",
                "false", "--dataloader.snapshot_every_n_steps", "4", "--dataloader.val.num_workers", "1",
                "--dataloader.val.prefetch_factor", "5", "--dataloader.val.persistent_workers", "false",
                "--dataloader.val.pin_memory", "false", "--dataloader.val.in_order", "true",
                "--dataloader.val.snapshot_every_n_steps", "6", "--dataloader.test.num_workers", "0");
  const auto train = config.dataloader.for_split("train");
  CHECK(train.num_workers == 2);
  CHECK(train.prefetch_factor == 3);
  CHECK(train.persistent_workers == true);
  CHECK(train.pin_memory == true);
  CHECK(train.in_order == false);
  CHECK(train.snapshot_every_n_steps == 4);
  const auto val = config.dataloader.for_split("val");
  CHECK(val.num_workers == 1);
  CHECK(val.prefetch_factor == 5);
  CHECK(val.persistent_workers == false);
  CHECK(val.pin_memory == false);
  CHECK(val.in_order == true);
  CHECK(val.snapshot_every_n_steps == 6);
  // A split that reads without workers does not inherit what needs them.
  const auto test = config.dataloader.for_split("test");
  CHECK(test.num_workers == 0);
  CHECK_FALSE(test.prefetch_factor);
  CHECK_FALSE(test.persistent_workers);
  CHECK(test.pin_memory == true);
}

TEST_CASE("RunnerConfig: who reads the data, and how far ahead, is no part of the run id", "[runner]") {
  RunnerConfig config;
  const std::string id = danling::config_id(config);
  parse_options(config, "--dataloader.num_workers", "2", "--dataloader.prefetch_factor", "3",
                "--dataloader.persistent_workers", "true", "--dataloader.pin_memory", "true",
                "--dataloader.snapshot_every_n_steps", "4", "--dataloader.val.num_workers", "1");
  CHECK(danling::config_id(config) == id);
}

TEST_CASE("RunnerConfig: sections of optim and sched for several models, over the common ones", "[runner]") {
  RunnerConfig config;
  const std::string id = danling::config_id(config);
  parse_options(config, "--optim.type", "sgd", "--optim.lr", "0.5", "--optim.momentum", "0.9", "--optim.param_groups",
                "[{pattern: bias, lr: 0.1}]", "--optim.generator.lr", "0.25", "--optim.generator.max_grad_norm", "2",
                "--optim.generator.accum_steps", "4", "--optim.critic.fused", "false", "--sched.type", "cosine",
                "--sched.final_lr_ratio", "0.1", "--sched.warmup_steps", "3", "--sched.critic.type", "linear",
                "--sched.critic.final_lr", "0");
  const auto generator = config.optim.for_name("generator");
  CHECK(generator.type == "sgd");
  CHECK(generator.lr == 0.25);
  CHECK(generator.momentum == 0.9);
  CHECK(generator.fused == true);
  REQUIRE(generator.param_groups.size() == 1);
  CHECK(generator.param_groups[0].lr == 0.1);
  CHECK(generator.max_grad_norm == 2.0);
  CHECK_FALSE(generator.max_grad_value);
  CHECK(generator.accum_steps == 4);
  CHECK(generator.section == "optim.generator");
  const auto critic = config.optim.for_name("critic");
  CHECK(critic.lr == 0.5);
  CHECK(critic.fused == false);
  CHECK_FALSE(critic.max_grad_norm);
  CHECK(config.optim.for_name("teacher").lr == 0.5);

  CHECK(config.sched.for_name("generator").type == "cosine");
  CHECK(config.sched.for_name("generator").final_lr_ratio == 0.1);
  const auto linear = config.sched.for_name("critic");
  CHECK(linear.type == "linear");
  CHECK(linear.warmup_steps == 3);
  CHECK(linear.final_lr == 0.0);
  CHECK_FALSE(linear.final_lr_ratio);  // the section says the same in another way
  CHECK(linear.section == "sched.critic");

  CHECK(config.model_names() == std::vector<std::string>{"critic", "generator"});
  CHECK(danling::config_id(config) != id);
  CHECK_THAT(danling::canonical(config), ContainsSubstring("  critic:\n    fused: false\n"));
  RunnerConfig other;
  danling::from_tree(other, danling::to_tree(config));
  CHECK(danling::canonical(other) == danling::canonical(config));
}

TEST_CASE("RunnerConfig: a section of optim that is no model's, or a misspelt option in one, is refused", "[runner]") {
  CHECK(error_of_options("--optim.generator.lrr", "1") ==
        "[config.parse] expected a known key, got 'optim.generator.lrr' (command line); did you mean "
        "'optim.generator.lr'?");
  CHECK(error_of_options("--optim.weight_decy", "1") ==
        "[config.parse] expected a known key, got 'optim.weight_decy' (command line); did you mean "
        "'optim.weight_decay'?");
  CHECK(
      error_of_options("--sched.critic.final_lr", "1", "--sched.critic.final_lr_ratio", "0.1") ==
      "[config.validate] expected at most one of 'sched.critic.final_lr_ratio' and 'sched.critic.final_lr', got both");
  CHECK(error_of_options("--optim.critic.param_groups", "[{lr: 1}]") ==
        "[config.validate] expected a pattern for 'optim.critic.param_groups[0]', got none");
  CHECK(error_of_options("--optim.critic.max_grad_norm", "0") ==
        "[config.parse] expected a value above 0 for 'optim.critic.max_grad_norm', got 0.0 (command line)");

  RunnerConfig config;
  parse_options(config, "--optim.genrator.lr", "1");
  CHECK(error_of<ConfigError>([&] {
          config.check_model_names({"critic", "generator"});
        }) ==
        "[runner.check_model_names] expected sections of optim for the models (critic, generator), got "
        "'optim.genrator'; did you mean 'generator'?");
  CHECK(error_of<ConfigError>([&] { config.check_model_names({}); }) ==
        "[runner.check_model_names] expected sections of optim for the models (this runner has one, without a name), "
        "got 'optim.genrator'");
  RunnerConfig misspelt;
  danling::load_text(misspelt, "optim: {param_group: {lr: 1}}\n", "a.yaml");
  CHECK(error_of<ConfigError>([&] { misspelt.check_model_names({}); }) ==
        "[runner.check_model_names] expected sections of optim for the models (this runner has one, without a name), "
        "got 'optim.param_group'; did you mean 'param_groups'?");
  RunnerConfig schedule;
  parse_options(schedule, "--sched.critic.type", "linear");
  schedule.check_model_names({"critic"});
  CHECK(error_of<ConfigError>([&] { schedule.check_model_names({"actor"}); }) ==
        "[runner.check_model_names] expected sections of sched for the models (actor), got 'sched.critic'");
}

TEST_CASE("RunnerConfig: options of optim and sched that nothing would read are named", "[runner]") {
  RunnerConfig config;
  CHECK(config.check_optim(false).empty());
  CHECK(config.check_sched(false).empty());
  parse_options(config, "--sched.warmup_steps", "3", "--sched.interval", "epoch", "--optim.lr", "1");
  CHECK(error_of<ConfigError>([&] { (void)config.check_sched(false); }) ==
        "[runner.check_sched] expected sched.type beside 'sched.interval', 'sched.warmup_steps', got none, so that no "
        "scheduler is built; set sched.type, or leave them out");
  CHECK(error_of<ConfigError>([&] { (void)config.check_optim(false); }) ==
        "[runner.check_optim] expected optim.type beside 'optim.lr', got none, so that no optimizer is built; set "
        "optim.type, or leave them out");
  CHECK(config.check_sched(true) ==
        "expected no options for the scheduler that the program set, got 'sched.warmup_steps', which danling does not "
        "read");
  parse_options(config, "--sched.type", "cosine", "--optim.type", "sgd");
  CHECK(config.check_sched(false).empty());
  CHECK(config.check_optim(false).empty());
  CHECK(config.check_optim(true) ==
        "expected no options for the optimizer that the program set, got 'optim.type', 'optim.lr', which danling does "
        "not read");
}

TEST_CASE("RunnerConfig: score_mode is min or max, in any case, and no part of the run id", "[runner]") {
  RunnerConfig config;
  const std::string id = danling::config_id(config);
  parse_options(config, "--score_mode", "MAX");
  CHECK(config.score_mode == "max");
  CHECK(danling::config_id(config) == id);
  CHECK(error_of_options("--score_mode", "lower") ==
        "[config.parse] expected one of min, max for 'score_mode', got 'lower' (command line)");
}

TEST_CASE("RunnerConfig: impossible loader options are refused by name", "[runner]") {
  CHECK(error_of_options("--dataloader.num_workers", "-1") ==
        "[config.parse] expected a value of at least 0 for 'dataloader.num_workers', got -1 (command line)");
  CHECK(error_of_options("--dataloader.val.prefetch_factor", "0") ==
        "[config.parse] expected a value of at least 1 for 'dataloader.val.prefetch_factor', got 0 (command line)");
  CHECK(error_of_options("--dataloader.snapshot_every_n_steps", "0") ==
        "[config.parse] expected a value of at least 1 for 'dataloader.snapshot_every_n_steps', got 0 (command line)");
}

TEST_CASE("RunnerConfig: options of one split over the common ones", "[runner]") {
  RunnerConfig config;
  parse_options(config, "--dataloader.batch_size", "64", "--dataloader.shuffle", "true", "--dataloader.val.batch_size",
                "128", "--dataloader.val.shuffle", "false");
  CHECK(config.dataloader.for_split("train").batch_size == 64);
  CHECK(config.dataloader.for_split("train").shuffle == true);
  CHECK(config.dataloader.for_split("val").batch_size == 128);
  CHECK(config.dataloader.for_split("val").shuffle == false);
  CHECK_FALSE(config.dataloader.for_split("val").drop_last);
}

TEST_CASE("RunnerConfig: the id holds what a run computes, not its length, place or reporting", "[runner]") {
  CHECK(danling::canonical(RunnerConfig()) ==
        "accum_steps: 1\n"
        "deterministic: false\n"
        "flush_denormals: false\n"
        "optim:\n"
        "  fused: true\n"
        "skip_nonfinite_grad: false\n"
        "stack: ddp\n");
  RunnerConfig config;
  const std::string id = danling::config_id(config);
  parse_options(config, "--stack", "torch", "--epochs", "3", "--workspace_root", "/x", "--lineage", "a", "--experiment",
                "b", "--name", "c", "--auto_resume", "--resume", "d", "--pretrained", "e", "--checkpoint.dir_name", "f",
                "--checkpoint.interval", "2", "--log", "false", "--log_interval", "5", "--console", "no", "--device",
                "cpu", "--num_threads", "2", "--allocator", "system", "--score_name", "acc", "--score_split", "val",
                "--patience", "4", "--test_splits", "test", "--test_with", "best", "--checkpoint.export_with", "best");
  CHECK(danling::config_id(config) == id);
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"seed", "1"},
                                                        {"deterministic", "true"},
                                                        {"accum_steps", "2"},
                                                        {"optim.lr", "0.1"},
                                                        {"sched.type", "linear"},
                                                        {"dataloader.batch_size", "8"},
                                                        {"dataloader.train.shuffle", "false"},
                                                        {"dataloader.in_order", "false"},
                                                        {"precision", "bf16"},
                                                        {"max_grad_norm", "1"},
                                                        {"train_splits", "train"},
                                                        {"optim.fused", "false"}}) {
    CAPTURE(key);
    RunnerConfig other;
    danling::apply(other, key, value);
    CHECK(danling::config_id(other) != id);
  }
}

struct UserConfig : RunnerConfig {
  struct Data : danling::Section {
    std::string root = "data";
    void fields(danling::Fields& f) override { f("root", root, "directory of the images").non_semantic(); }
  } data;
  int hidden = 128;
  UserConfig() {
    optim.type = "sgd";
    optim.lr = 0.1;
  }
  void fields(danling::Fields& f) override {
    f("hidden", hidden, "hidden units").at_least(1);
    f("data", data, "the data");
  }
};

TEST_CASE("RunnerConfig: fields of a derived config take part in everything", "[runner]") {
  UserConfig config;
  parse_options(config, "--hidden", "64", "--data.root", "/d", "--epochs", "2");
  CHECK(config.hidden == 64);
  CHECK(config.epochs == 2);
  CHECK(danling::to_yaml(danling::changed(danling::to_tree(config), danling::to_tree(UserConfig()))) ==
        "epochs: 2\nhidden: 64\ndata:\n  root: /d\n");
  CHECK_THAT(danling::canonical(config), ContainsSubstring("hidden: 64\n"));
  CHECK_THAT(danling::canonical(config), !ContainsSubstring("root"));
  CHECK(danling::describe(danling::differences(danling::semantic_tree(config), danling::semantic_tree(UserConfig())),
                          "in the checkpoint", "here") == "  hidden: 64 in the checkpoint, 128 here\n");
  CHECK(error_of<ConfigError>([&] { danling::load_text(config, "hiden: 3\n", "a.yaml"); }) ==
        "[config.parse] expected a known key, got 'hiden' (file 'a.yaml', line 1); did you mean 'hidden'?");
  const std::string help = danling::help(config, "mnist", 100);
  CHECK_THAT(help, ContainsSubstring("Options of this program\n  --hidden integer"));
  CHECK_THAT(help, ContainsSubstring("--optim.lr number"));
  CHECK_THAT(help, ContainsSubstring("learning rate; unset") || ContainsSubstring("(default: 0.1)"));
}

TEST_CASE("RunnerConfig: --help describes every supported key and lists every other", "[runner]") {
  const std::string help = danling::help(RunnerConfig(), "program", 100);
  for (const auto& [key, value] : specified) {
    const std::string name = key;
    const auto dot = name.find('.');
    CAPTURE(name);
    const bool listed = help.find("--" + name + " ") != std::string::npos || help.find(name) != std::string::npos ||
                        help.find(name.substr(0, dot) + ".*") != std::string::npos;
    CHECK(listed);
  }
  CHECK(help.find("\n  --tensorboard") == std::string::npos);
  // A supported field without a description would leave spaces at the end of its line, or only its default.
  CHECK(help.find(" \n") == std::string::npos);
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK(line.size() <= 100);
    const bool undescribed = line.starts_with("  --") && line.size() > 36 && line.substr(36).starts_with("(default");
    CHECK_FALSE(undescribed);
  }
}

}  // namespace
