// Applies DeepSpeed's JSON to a config: batch sizes, precision, ZeRO stage, monitors.
#include <danling/runner/deepspeed_config.hpp>

#include <cmath>
#include <tuple>

#include <danling/config/config.hpp>
#include <danling/config/tree.hpp>
#include <danling/runner/deepspeed_schedule.hpp>

#include <config/node.hpp>
#include <runner/deepspeed_fold.hpp>
#include <runner/deepspeed_stack.hpp>

namespace danling::inline v0 {
namespace {

constexpr auto fold_where = "deepspeed.config";

void fold_batch(detail::DeepSpeedFold& fold, detail::DeepSpeedSection& root, ConfigTree& effective,
                std::int64_t world_size) {
  RunnerConfig& config = fold.config;
  const auto own_size = config.dataloader.for_split("train").batch_size;
  const bool is_given = own_size != fold.defaults.dataloader.for_split("train").batch_size;
  const bool gives = root.has("train_micro_batch_size_per_gpu");
  const auto batch = detail::resolve_deepspeed_batch(
      root, {!gives || is_given ? own_size : std::nullopt, config.accum_steps}, world_size, fold.notes.warnings);
  config.accum_steps = batch.accumulation;
  if (batch.micro) {
    const std::string from = root.path_of(gives ? "train_micro_batch_size_per_gpu" : "train_batch_size");
    if (own_size != batch.micro) {
      fold.set(config.dataloader.batch_size, fold.defaults.dataloader.batch_size, *batch.micro, "dataloader.batch_size",
               from);
    }
    const auto now = config.dataloader.for_split("train").batch_size;
    check<ConfigError>(now == batch.micro, fold_where, "expected 'dataloader.train.batch_size' to be ", *batch.micro,
                       " as ", quote(from), " sets it, or unset; got ", now.value_or(0));
    effective["train_micro_batch_size_per_gpu"] = *batch.micro;
  }
  effective["gradient_accumulation_steps"] = 1;
  if (const auto drop = root.boolean("dataloader_drop_last")) {
    fold.set(config.dataloader.drop_last, fold.defaults.dataloader.drop_last, *drop, "dataloader.drop_last",
             root.path_of("dataloader_drop_last"));
  }
}

void fold_fp16(detail::DeepSpeedFold& fold, detail::DeepSpeedSection fp16) {
  RunnerConfig& config = fold.config;
  const bool enabled = fp16.boolean("enabled").value_or(false);
  const auto fixed = fp16.number("loss_scale").value_or(0);
  const auto power = fp16.integer("initial_scale_power").value_or(16);
  const auto window = fp16.integer("loss_scale_window").value_or(1000);
  const auto hysteresis = fp16.integer("hysteresis").value_or(2);
  const auto lowest = fp16.number("min_loss_scale").value_or(1);
  const bool refills = fp16.boolean("consecutive_hysteresis").value_or(false);
  fp16.boolean("auto_cast");  // autocast always casts inputs
  const bool half_masters = fp16.boolean("fp16_master_weights_and_grads").value_or(false);
  fp16.finish();
  check<ConfigError>(!half_masters, fold_where, "expected no '", fp16.path(), ".fp16_master_weights_and_grads', got ",
                     "true, which is not available: the optimizer updates float32 weights");
  check<ConfigError>(fixed >= 0, fold_where, "expected 0 (a dynamic scale) or more for '", fp16.path(),
                     ".loss_scale', got ", fixed);
  check<ConfigError>(window > 0, fold_where, "expected a number above 0 for '", fp16.path(),
                     ".loss_scale_window', got ", window);
  check<ConfigError>(power >= 0 && power < 128, fold_where, "expected a number from 0 to 127 for '", fp16.path(),
                     ".initial_scale_power', got ", power);
  if (!enabled) return;
  fold.set(config.precision, fold.defaults.precision, std::string("fp16"), "precision", fp16.path());
  const auto set = [&](auto& field, const auto& standard, auto value, std::string_view name, std::string_view key) {
    fold.set(field, standard, value, concat("scaler.", name), fp16.path_of(key));
  };
  auto& scaler = config.scaler;
  const auto& standard = fold.defaults.scaler;
  if (fixed > 0) {
    // The largest factor below 1 leaves a float32 scale unchanged; an update that overflows is still skipped.
    set(scaler.init_scale, standard.init_scale, fixed, "init_scale", "loss_scale");
    set(scaler.backoff_factor, standard.backoff_factor, std::nextafter(1.0, 0.0), "backoff_factor", "loss_scale");
    set(scaler.growth_interval, standard.growth_interval, std::int64_t{2147483647}, "growth_interval", "loss_scale");
  } else {
    set(scaler.init_scale, standard.init_scale, std::ldexp(1.0, static_cast<int>(power)), "init_scale",
        "initial_scale_power");
    set(scaler.growth_interval, standard.growth_interval, window, "growth_interval", "loss_scale_window");
    if (hysteresis != 1) {
      fold.notes.warnings.push_back(concat(fp16.path(), ".hysteresis ", hysteresis,
                                           ": the scale falls at the first overflow, in DeepSpeed at overflow ",
                                           hysteresis, refills ? " in a row" : ""));
    }
    fold.notes.warnings.push_back(concat(fp16.path(), ".min_loss_scale ", lowest, ": the scale has no lower bound"));
  }
  fold.notes.info.push_back(concat(fp16.path(), ": autocast to float16, with weights in float32"));
}

void fold_bf16(detail::DeepSpeedFold& fold, detail::DeepSpeedSection bf16) {
  const bool enabled = bf16.boolean("enabled").value_or(false);
  const bool skips = bf16.boolean("check_grad_overflow").value_or(true);
  bf16.boolean("immediate_grad_update");
  const bool half_masters = bf16.boolean("bf16_master_weights_and_grads").value_or(false);
  const bool half_states = bf16.boolean("bf16_optimizer_states").value_or(false);
  bf16.finish();
  check<ConfigError>(!half_masters && !half_states, fold_where, "expected no '", bf16.path(),
                     half_masters ? ".bf16_master_weights_and_grads" : ".bf16_optimizer_states",
                     "', got true, which is not available: the optimizer updates float32 weights");
  if (!enabled) return;
  fold.set(fold.config.precision, fold.defaults.precision, std::string("bf16"), "precision", bf16.path());
  fold.set(fold.config.skip_nonfinite_grad, fold.defaults.skip_nonfinite_grad, skips, "skip_nonfinite_grad",
           bf16.path_of("check_grad_overflow"));
  fold.notes.info.push_back(concat(bf16.path(), ": autocast to bfloat16, with weights in float32"));
}

void fold_autocast(detail::DeepSpeedFold& fold, detail::DeepSpeedSection autocast) {
  const bool enabled = autocast.boolean("enabled").value_or(false);
  const std::string dtype = autocast.text("dtype").value_or("bfloat16");
  const bool lists = autocast.take("lower_precision_safe_modules") != nullptr;
  autocast.finish();
  if (!enabled) return;
  check<ConfigError>(!lists, fold_where, "expected no '", autocast.path(),
                     ".lower_precision_safe_modules', got a list, ",
                     "which is not available: autocast chooses by operation");
  const bool brain = dtype == "bfloat16" || dtype == "bf16" || dtype == "torch.bfloat16";
  check<ConfigError>(brain || dtype == "float16" || dtype == "fp16" || dtype == "half" || dtype == "torch.float16",
                     fold_where, "expected bfloat16 or float16 for '", autocast.path(), ".dtype', got ", quote(dtype));
  fold.set(fold.config.precision, fold.defaults.precision, std::string(brain ? "bf16" : "fp16"), "precision",
           autocast.path());
}

void fold_precision(detail::DeepSpeedFold& fold, detail::DeepSpeedSection& root, ConfigTree& effective) {
  check<ConfigError>(!root.has("bf16") || !root.has("bfloat16"), fold_where,
                     "expected one of 'deepspeed.bf16' and 'deepspeed.bfloat16', its old name; got both");
  const auto enables = [&](std::string_view key) {
    bool enabled = false;
    if (root.has(key)) {
      const ConfigTree* section = root.take(key);
      const ConfigTree* value = section->is_map() ? section->find("enabled") : nullptr;
      enabled = value != nullptr && value->is_bool() && value->boolean();
    }
    return enabled;
  };
  const char* bf16 = root.has("bfloat16") ? "bfloat16" : "bf16";
  check<ConfigError>(!enables("fp16") || !enables(bf16), fold_where,
                     "expected one of 'deepspeed.fp16.enabled' and 'deepspeed.", bf16, ".enabled', got both");
  const bool typed = root.has("fp16") || root.has(bf16) || root.has("torch_autocast");
  fold_fp16(fold, root.section("fp16"));
  fold_bf16(fold, root.section(bf16));
  root.take("bfloat16");
  root.take("bf16");
  fold_autocast(fold, root.section("torch_autocast"));
  if (!typed) {  // as in DanLing: the other way round
    const std::string_view name = fold.config.precision_name();
    if (name == "fp16" || name == "bf16") {
      effective[name]["enabled"] = true;
    }
  }
}

int fold_zero(detail::DeepSpeedSection zero) {
  const auto stage = zero.integer("stage").value_or(0);
  check<ConfigError>(stage >= 0 && stage <= 3, fold_where, "expected 0, 1, 2 or 3 for '", zero.path(), ".stage', got ",
                     stage);
  for (const char* key : {"offload_optimizer", "offload_param"}) {
    auto offload = zero.section(key);
    const std::string device = offload.text("device").value_or("none");
    check<ConfigError>(device == "none", fold_where, "expected none for '", offload.path(), ".device', got ",
                       quote(device), ", which is not available; fsdp.offload_policy of the config keeps parameters, ",
                       "gradients and states on the host, with stage 3");
    for (const char* tuning : {"nvme_path", "buffer_count", "buffer_size", "max_in_cpu", "pin_memory", "pipeline_read",
                               "pipeline_write", "fast_init", "ratio", "super_offload", "cpuadam_cores_perc"}) {
      offload.take(tuning);  // for a device other than none
    }
    offload.finish();
  }
  for (const char* key : {"cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory"}) {
    check<ConfigError>(!zero.boolean(key).value_or(false), fold_where, "expected no '", zero.path(), ".", key,
                       "', got true, which is not available; fsdp.offload_policy of the config keeps parameters, ",
                       "gradients and states on the host, with stage 3");
  }
  zero.finish();
  return static_cast<int>(stage);
}

void fold_communication(detail::DeepSpeedFold& fold, detail::DeepSpeedSection& root, int stage) {
  const auto type = root.text("communication_data_type");
  if (!type || *type == "fp32") return;
  check<ConfigError>(*type == "fp16" || *type == "bf16", fold_where,
                     "expected fp32, fp16 or bf16 for 'deepspeed.communication_data_type', got ", quote(*type));
  check<ConfigError>(stage == 0, fold_where, "expected fp32 for 'deepspeed.communication_data_type' with ZeRO stage ",
                     stage, ", got ", *type, ", which is available with stage 0");
  fold.set(fold.config.ddp.comm_hook, fold.defaults.ddp.comm_hook, concat(*type, "_compress"), "ddp.comm_hook",
           root.path_of("communication_data_type"));
}

void fold_monitors(detail::DeepSpeedFold& fold, detail::DeepSpeedSection& root) {
  RunnerConfig& config = fold.config;
  if (const auto steps = root.integer("steps_per_print")) {
    check<ConfigError>(*steps > 0, fold_where, "expected a number above 0 for 'deepspeed.steps_per_print', got ",
                       *steps);
    fold.set(config.log_interval, fold.defaults.log_interval, *steps, "log_interval", root.path_of("steps_per_print"));
  }
  for (const auto& [key, field, standard, name] :
       {std::tuple("tensorboard", &config.tensorboard, fold.defaults.tensorboard, "tensorboard"),
        std::tuple("csv_monitor", &config.csv, fold.defaults.csv, "csv")}) {
    auto monitor = root.section(key);
    const bool enabled = monitor.boolean("enabled").value_or(false);
    const bool places = monitor.text("output_path").has_value() + monitor.text("job_name").has_value() > 0;
    monitor.finish();
    if (enabled) {
      fold.set(*field, standard, true, name, monitor.path());
      if (places) {
        fold.notes.info.push_back(
            concat(monitor.path(), ".output_path, job_name: files are in the directory of the run"));
      }
    }
  }
  auto wandb = root.section("wandb");
  const bool enabled = wandb.boolean("enabled").value_or(false);
  const auto group = wandb.text("group"), team = wandb.text("team"), project = wandb.text("project");
  wandb.finish();
  if (enabled) {
    fold.set(config.wandb.enabled, fold.defaults.wandb.enabled, true, "wandb.enabled", wandb.path());
    const auto& standard = fold.defaults.wandb;
    if (group) fold.set(config.wandb.group, standard.group, *group, "wandb.group", wandb.path_of("group"));
    if (team) fold.set(config.wandb.entity, standard.entity, *team, "wandb.entity", wandb.path_of("team"));
    fold.set(config.wandb.project, standard.project, project.value_or("deepspeed"), "wandb.project",
             wandb.path_of("project"));
  }
}

void fold_clipping(detail::DeepSpeedFold& fold, detail::DeepSpeedSection& root) {
  const auto given = root.number("gradient_clipping");
  check<ConfigError>(given.value_or(0) >= 0, fold_where,
                     "expected 0 (no clipping) or more for 'deepspeed.gradient_clipping', got ", given.value_or(0));
  if (given) {
    const auto norm = *given > 0 ? given : std::nullopt;
    fold.set(fold.config.max_grad_norm, fold.defaults.max_grad_norm, norm, "max_grad_norm",
             root.path_of("gradient_clipping"));
  } else if (!fold.config.max_grad_norm) {
    fold.config.max_grad_norm = 1.0;
    fold.notes.warnings.push_back(
        "deepspeed.gradient_clipping is not set: gradients are clipped to a norm of 1, which is DeepSpeed's default; 0 "
        "clips none");
  }
}

}  // namespace

void detail::fold_deepspeed(RunnerConfig& config, const RunnerConfig& defaults, std::int64_t world_size,
                            DeepSpeedNotes& notes) {
  check<ConfigError>(
      config.stack == "auto" || config.stack == "deepspeed" || config.stack == "ds" || config.stack == defaults.stack,
      fold_where, "expected 'stack: deepspeed' for a runner that reads 'deepspeed', got ", config.stack);
  check<ConfigError>(!config.parallel.axes.any(), fold_where,
                     "expected 'stack: parallel' with 'parallel.axes', got deepspeed, whose processes all share the "
                     "data");
  check<ConfigError>(!config.ft.enabled, fold_where,
                     "expected 'stack: ddp' with 'ft.enabled', got deepspeed, whose sizes are those of a fixed number "
                     "of processes");
  ConfigTree tree = config.deepspeed.is_string() ? read_config_tree(config.deepspeed.string()) : config.deepspeed;
  if (tree.is_null()) {
    tree = ConfigTree(ConfigTree::Map());
  }
  ConfigTree effective = tree;
  DeepSpeedFold fold(config, defaults, notes);
  DeepSpeedSection root(&tree, "deepspeed", notes.info);
  fold_batch(fold, root, effective, world_size);
  fold_precision(fold, root, effective);
  const int stage = fold_zero(root.section("zero_optimization"));
  fold_communication(fold, root, stage);
  fold_clipping(fold, root);
  fold_monitors(fold, root);
  fold.read_optimizer(root.section("optimizer"));
  if (root.has("scheduler")) {
    check<ConfigError>(config.sched.type_name().empty() || config.sched.type == defaults.sched.type, fold_where,
                       "expected one schedule, got 'sched.type' and 'deepspeed.scheduler'");
    config.sched = {};
    read_deepspeed_schedule(*root.take("scheduler"), notes.warnings);
  }
  root.finish();
  if (config.checkpoint.backend == "dcp") {
    notes.warnings.push_back("DeepSpeedRunner overrides checkpoint.backend to 'file'");  // DanLing's text
  }
  config.checkpoint.backend = "file";
  config.deepspeed = std::move(effective);
  config.stack = "deepspeed";
  config.zero_stage = stage;
  RunnerConfig actual = config;  // throws for settings that the stack refuses
  actual.deepspeed = {};
  apply_zero_stage(actual, stage);
  actual.base_validate();
}

}  // namespace danling::inline v0
