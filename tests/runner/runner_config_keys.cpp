// RunnerConfig: DanLing's keys, their defaults, and those that this release refuses.
#include "fixture.hpp"
#include "parse.hpp"

namespace runner_test {
namespace {

/// DanLing's keys with their defaults as YAML: those that its documentation of RunnerConfig lists, and those that its
/// code reads without a declaration.
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
    {"fsdp.mp_policy.param_dtype", "null"},
    {"fsdp.mp_policy.output_dtype", "null"},
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
    // Read without a declaration.
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
    danling::load_text(config, danling::detail::concat(key, ": ", value, "\n"), "a.yaml");
    danling::finalize(config);
  }
  RunnerConfig config;
  danling::load_text(config, danling::to_yaml(danling::to_tree(RunnerConfig())), "full.yaml");
  danling::finalize(config);
  CHECK(danling::find_differences(danling::to_tree(config), danling::to_tree(RunnerConfig())).empty());
}

TEST_CASE("RunnerConfig: a key of a feature that this release lacks is an error with its name", "[runner]") {
  CHECK(error_of_options("--fsdp.mesh", "2") ==
        "[config.parse] expected 'fsdp.mesh' to keep its default null, got '2' (command line); not available in this "
        "release: an argument of PyTorch's fully_shard that is an object of Python");
  CHECK(error_of_options("--wandb.mode", "online") ==
        "[config.parse] expected a value that this release supports for 'wandb.mode', got 'online': not available: a "
        "client of the server; write offline and upload by `wandb sync` (command line)");
  CHECK(error_of_options("--gc.interval", "10") ==
        "[config.parse] expected 'gc.interval' to keep its default null, got '10' (command line); "
        "not available in this release: pacing of Python's garbage collector, which C++ does not have");
  CHECK(error_of_options("--precision", "fp8") ==
        "[config.parse] expected a value that this release supports for 'precision', got 'fp8': not available: fp8 "
        "(command line)");

  CHECK(error_of_options("--compile.optimize_ddp", "false") ==
        "[config.parse] expected 'compile.optimize_ddp' to keep its default ddp_optimizer, got 'false' (command "
        "line); not available in this release: torch.compile's partition of graphs for DistributedDataParallel");

  // Every key of these sections.
  for (const auto& [key, value] : specified) {
    const std::string name = key;
    const std::string section = name.substr(0, name.find('.'));
    for (const char* missing : {"gc"}) {
      if (section == missing) {
        CAPTURE(name);
        RunnerConfig config;
        CHECK_THAT(error_of<ConfigError>([&] { danling::set_option(config, name, "-77"); }),
                   ContainsSubstring("not available in this release"));
      }
    }
  }
}

TEST_CASE("RunnerConfig: --help describes every supported key and lists every other", "[runner]") {
  const std::string help = danling::help(RunnerConfig(), "program", 100);
  for (const auto& [key, value] : specified) {
    const std::string name = key;
    CAPTURE(name);
    bool listed = help.find(name) != std::string::npos;
    for (auto dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      listed = listed || help.find(" " + name.substr(0, dot) + ".*") != std::string::npos;
    }
    CHECK(listed);
  }
  CHECK(help.find("\n  --fsdp.mesh") == std::string::npos);
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
}  // namespace runner_test
