// RunnerConfig: all settings of a runner.
#include <danling/runner/runner_config.hpp>

#include <algorithm>
#include <set>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/runner/stacks.hpp>

#include <config/field_spec.hpp>
#include <runner/deepspeed_stack.hpp>
#include <runner/logging_config.hpp>
#include <runner/precision_config.hpp>
#include <runner/process_config.hpp>
#include <runner/reserved_keys.hpp>
#include <runner/tools_config.hpp>

namespace danling::inline v0 {
namespace {

bool is_device(const std::string& name) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const std::string cuda = "cuda:";
  return name == "auto" || name == "cpu" || name == "cuda" ||
         (name.starts_with(cuda) && name.size() > cuda.size() && name.size() <= cuda.size() + 3 &&
          std::all_of(name.begin() + 5, name.end(), digit));
}

std::vector<std::string> stack_names() {
  static const bool knows_deepspeed = (detail::add_deepspeed_stack(stacks()), true);
  static_cast<void>(knows_deepspeed);
  std::vector<std::string> names{"auto", "ddp", "torch", "ds"};
  for (const std::string& registered : stacks().names()) {
    if (registered != "ddp") {
      names.push_back(registered);
    }
  }
  return names;
}

}  // namespace

void ModelOptimConfig::fields(Fields& f) {
  OptimizerSpec::fields(f);
  f("max_grad_norm", max_grad_norm, "clip this model's gradients to this norm; unset: the run's").above(0);
  f("max_grad_value", max_grad_value, "clip each gradient to this magnitude; unset: the run's").above(0);
  f("accum_steps", accum_steps, "micro-batches per update of this optimizer; unset: the run's").at_least(1);
}

void OptimConfig::fields(Fields& f) {
  OptimizerSpec::fields(f);
  f.others("model", models,
           "options of one of several models, such as --optim.generator.lr 1e-4, also max_grad_norm, max_grad_value, "
           "accum_steps");
  detail::reserve(f, detail::reserved_keys().optim);
}

ModelOptimConfig OptimConfig::for_name(const std::string& model) const {
  const auto found = models.find(model);
  ModelOptimConfig out = found == models.end() ? ModelOptimConfig() : found->second;
  inherit(out, static_cast<const OptimizerSpec&>(*this));
  out.section = concat("optim.", model);
  return out;
}

void SchedConfig::fields(Fields& f) {
  SchedulerSpec::fields(f);
  f.others("model", models, "options for one of several models");
}

optim::SchedulerSpec SchedConfig::for_name(const std::string& model) const {
  const auto found = models.find(model);
  SchedulerSpec out = found == models.end() ? SchedulerSpec() : found->second;
  SchedulerSpec common = *this;
  if (out.type || !out.chain.empty()) {
    common.type.reset();
    common.chain.clear();
  }
  if (out.final_lr || out.final_lr_ratio) {
    common.final_lr = common.final_lr_ratio = std::nullopt;  // alternatives: set only one
  }
  inherit(out, common);
  out.section = concat("sched.", model);
  return out;
}

namespace {

// Options of an average that is not enabled would have no effect.
template <class Options>
void check_average(const AverageConfig<Options>& config, const std::string& section) {
  const auto check_enabled = [&](const AverageSection<Options>& own, bool enabled, const std::string& key) {
    const auto set = assigned_keys(own);
    check<ConfigError>(enabled || set.empty(), "config.validate", "expected '", key, ".enabled' with '", key, ".",
                       set.empty() ? "" : set.front(), "', got none");
  };
  bool any = config.enabled.has_value();
  for (const auto& [model, own] : config.models) {
    check_enabled(own, config.for_name(model).enabled.has_value(), concat(section, ".", model));
    any = any || own.enabled;
  }
  check_enabled(config, any, section);
}

// Only SWALR uses them.
void check_anneal(const AverageConfig<optim::SWAOptions>& swa) {
  const auto check_lr = [](const optim::SWAOptions& own, bool has_lr, const std::string& key) {
    check<ConfigError>(has_lr || !(own.anneal || own.anneal_strategy), "config.validate", "expected '", key,
                       ".lr' with '", key, own.anneal ? ".anneal" : ".anneal_strategy", "', got none");
  };
  bool any = swa.lr.has_value();
  for (const auto& [model, own] : swa.models) {
    check_lr(own, swa.for_name(model).lr.has_value(), concat("swa.", model));
    any = any || own.lr;
  }
  check_lr(swa, any, "swa");
}

}  // namespace

template <class Options>
void AverageSection<Options>::fields(Fields& f) {
  f("enabled", enabled, "average the weights, for evaluation and export; unset: false");
  Options::fields(f);
}

template <class Options>
void AverageConfig<Options>::fields(Fields& f) {
  AverageSection<Options>::fields(f);
  f.others("model", models, "options for one of several models");
}

template <class Options>
AverageSection<Options> AverageConfig<Options>::for_name(const std::string& model) const {
  const auto found = models.find(model);
  AverageSection<Options> out = found == models.end() ? AverageSection<Options>() : found->second;
  inherit(out, static_cast<const AverageSection<Options>&>(*this));
  return out;
}

template struct AverageSection<optim::EMAOptions>;
template struct AverageSection<optim::SWAOptions>;
template struct AverageConfig<optim::EMAOptions>;
template struct AverageConfig<optim::SWAOptions>;

void LossConfig::fields(Fields& f) {
  f("type", type, "loss; unset: a term of the program's losses").case_insensitive();
  f("weight", weight, "weight in the sum; unset: that of the program's term, or 1");
  f("schedule", schedule, "curve by which the weight goes from `from` to `weight`, such as linear or cosine")
      .case_insensitive();
  f("from", from, "weight before the schedule; unset: 0");
  f("begin", begin, "updates before the schedule; unset: 0").at_least(0);
  f("length", length, "updates of the schedule; unset: until the end of the run").at_least(1);
  LossOptions::fields(f);
}

void LossesConfig::fields(Fields& f) {
  f.others("loss", terms, "options of one term of the loss, such as --losses.aux.weight 0.1");
}

void DistillConfig::fields(Fields& f) {
  f("checkpoint", checkpoint, "file with the weights of the program's teacher; unset: its current ones");
  f("strict", strict, "require that all weights of the file and of the teacher match; unset: true");
  f("temperature", temperature, "divides the logits of model and teacher; unset: 2").above(0);
  f("weight", weight, "weight of the loss against the teacher; unset: 1");
}

void DataloaderOverrides::fields(Fields& f) {
  f("batch_size", batch_size,
    "samples per batch and process; unset: as the sample's type declares (train_batch_size for splits that train, "
    "val_batch_size for all others), or 1")
      .at_least(1);
  f("shuffle", shuffle, "draw samples in random order; unset: for splits that train");
  f("drop_last", drop_last, "leave out an incomplete last batch; unset: for splits that train");
  f("collation", collation,
    "how samples of the type Sample become a batch: of equal shapes, padded to the longest, or nested without padding; "
    "unset: stack");
  // Workers and read-ahead do not change batches: a run may resume with others.
  f("num_workers", num_workers, "threads that read batches ahead; unset: as the sample's type declares, or 0")
      .at_least(0)
      .non_semantic();
  f("prefetch_factor", prefetch_factor, "batches read ahead for each worker; unset: 2").at_least(1).non_semantic();
  f("persistent_workers", persistent_workers, "keep the workers from epoch to epoch; unset: false").non_semantic();
  f("pin_memory", pin_memory, "put batches in page-locked memory, for copies to a GPU; unset: false").non_semantic();
  f("snapshot_every_n_steps", snapshot_every_n_steps, "batches between snapshots of a stream's state; unset: 1")
      .at_least(1)
      .non_semantic();
  f("in_order", in_order, "deliver batches in the order of the epoch; otherwise as workers finish them; unset: true");
}

void DataloaderConfig::fields(Fields& f) {
  DataloaderOverrides::fields(f);
  f.others("split", splits, "overrides for one split, such as --dataloader.train.shuffle false");
}

DataloaderOverrides DataloaderConfig::for_split(const std::string& split) const {
  auto common = static_cast<const DataloaderOverrides&>(*this);  // without the splits
  const auto found = splits.find(split);
  if (found == splits.end()) {
    return common;
  }
  DataloaderOverrides own = found->second;
  if (own.num_workers == 0) {
    common.prefetch_factor.reset();
    common.persistent_workers.reset();
  }
  inherit(own, common);
  return own;
}

void CheckpointConfig::fields(Fields& f) {
  f("dir_name", dir_name, "directory of checkpoints below the run");
  f("interval", interval,
    "epochs or updates between saves; 0: only at the end; unset: 1 epoch, or 1/20 of the updates (8192 if unknown)")
      .at_least(0);
  f("keep_latest_k", keep_latest_k,
    "newest history checkpoints to keep; 0 keeps all, unless one of the next two is set")
      .at_least(0);
  f("keep_best_k", keep_best_k, "number of history checkpoints with the best scores to keep too").at_least(0);
  f("keep_every_hours", keep_every_hours, "also keep the first history checkpoint of each period of this many hours")
      .at_least(0);
  f("load_only", load_only, "load checkpoints and write none");
  f("exclude_from_loading", exclude_from_loading,
    "parts not to load: optimizer, scheduler, dataloaders, or dotted keys");
  f("last_save_model_only", last_save_model_only, "save only the model at the end");
  f("export_dtype", export_dtype, "dtype of the model-only file; unset: as trained")
      .choices({"fp32", "fp16", "bf16", "fp64"})
      .synonym("float", "fp32")
      .synonym("float32", "fp32")
      .synonym("float16", "fp16")
      .synonym("half", "fp16")
      .synonym("bfloat16", "bf16")
      .synonym("float64", "fp64")
      .synonym("double", "fp64");
  f("backend", backend,
    "file: one file each, which the main process writes; dcp: directories, to which each process writes its part; "
    "auto: "
    "file, and dcp where processes have slices or stages of the model")
      .choices({"auto", "file", "dcp"});
  f("wait_timeout", wait_timeout, "seconds to wait at the end for writes that have not finished; unset: no limit")
      .at_least(0);
  f("on_error", on_error, "after a failed save: continue training, or stop").choices({"continue", "stop"});
  f("export_safetensors", export_safetensors, "write model.safetensors next to model.pth");
  f("export_with", export_with, "weights in model.pth: those of the last step, or of the best score")
      .choices({"last", "best"});
  f("export_script", export_script, "write model.pt next to model.pth for a TorchScript model");
  f("async_enabled", async_enabled, "write checkpoints while training continues");
  f("async_mode", async_mode, "disabled, async, or async_with_pinned_mem; unset: by async_enabled")
      .choices({"disabled", "async", "async_with_pinned_mem"});
  detail::reserve(f, detail::reserved_keys().checkpoint);
}

void RunnerConfig::fields(Fields&) {}

void RunnerConfig::base_fields(Fields& f) {
  f.group("Reproducibility");
  f("seed", seed, "seed of every generator; unset: a new one, which is logged").at_least(0);
  f("deterministic", deterministic, "use deterministic kernels only");
  f("tf32", tf32,
    "TF32 in float32 products and convolutions on CUDA; unset: LibTorch's default (only in convolutions)");

  f.group("Progress (at most one of epochs and steps)");
  f("epochs", epochs, "train until this epoch").at_least(0).non_semantic();
  f("steps", steps, "train until this update").at_least(0).non_semantic();
  f("accum_steps", accum_steps, "micro-batches per update").at_least(1);
  f("time_limit", time_limit,
    "save and exit with code 75 before this time has passed since the start: seconds, 90m, 1h30m, or d-hh:mm:ss; "
    "unset: none")
      .non_semantic();

  f.group("Evaluation");
  f("train_splits", train_splits, "splits to train on; unset: those of training datasets");
  f("evaluate_splits", evaluate_splits, "splits to evaluate; unset: the others");
  f("evaluate_interval", evaluate_interval,
    "with `steps`: updates between evaluations of whole splits; unset: one, at the end, of a part of each split")
      .at_least(1)
      .non_semantic();
  f("test_splits", test_splits, "splits evaluated once at the end and reported separately, never used for selection")
      .non_semantic();
  f("test_with", test_with, "weights that test_splits are evaluated with: the last, or those of the best score")
      .choices({"last", "best"})
      .non_semantic();
  f("score_split", score_split,
    "split that selects the best model; unset: the first evaluation split whose name begins with val, else the first")
      .non_semantic();
  f("score_name", score_name, "metric that selects the best model").non_semantic();
  f("score_mode", score_mode,
    "min: lower scores are better; max: higher; unset: as the metric declares, else min for loss, max for others")
      .choices({"min", "max"})
      .non_semantic();
  f("patience", patience, "epochs without a better score before training stops").at_least(0).non_semantic();
  f("min_delta", min_delta, "improvement that a score must exceed to count for patience").at_least(0).non_semantic();
  // Metrics do not change training: a run may resume with others, between epochs.
  f("metrics", metrics, "metrics to compute; with a type, replaces those that the program sets").non_semantic();

  f.group("Optimization");
  f("precision", precision, "bf16 and fp16: of autocast; fp64: of weights and inputs; unset: fp32")
      .choices({"fp32", "bf16", "fp16", "fp64"})
      .synonym("float", "fp32")
      .synonym("float32", "fp32")
      .synonym("bfloat16", "bf16")
      .synonym("half", "fp16")
      .synonym("float16", "fp16")
      .synonym("double", "fp64")
      .synonym("float64", "fp64")
      .refuse("fp8", "fp8");
  f("scaler", scaler, "loss scale, with precision fp16");
  f("max_grad_norm", max_grad_norm, "clip gradients to this norm; unset: no clipping").above(0);
  f("max_grad_value", max_grad_value, "clip each gradient to this magnitude; unset: no clipping").above(0);
  f("skip_nonfinite_grad", skip_nonfinite_grad, "skip updates with infinite or NaN gradients");
  f("on_nonfinite", on_nonfinite,
    "on an infinite or NaN training loss or gradient: warn in the log, skip the update, stop the run and save the "
    "batch, or roll back to the last checkpoint and skip the batch")
      .choices({"warn", "skip", "stop", "rollback"})
      .non_semantic();
  f("spike", spike, "action on a training loss far above the previous ones").non_semantic();
  f("max_rollbacks", max_rollbacks, "roll-backs before the run stops; unset: 3").at_least(0).non_semantic();
  f("losses", losses, "terms of the loss by name: their weights, or the losses themselves");
  f("distill", distill, "loss against the logits of the program's teacher");
  f("recompute", recompute,
    "regular expressions searched for in module names: the activations of these modules are recomputed in the "
    "backward pass instead of kept")
      .non_semantic();
  f("optim", optim, "optimizer; unset options keep the optimizer's defaults").alias("optimizer");
  f("sched", sched, "learning rate schedule").alias("scheduler");
  f("ema", ema, "exponential moving average of the weights");
  f("swa", swa, "equal average of the weights towards the end of the run");
  f("lora", lora, "low-rank adapters of linear layers, which train instead of the model");

  f.group("Data");
  f("dataloader", dataloader, "loaders");

  f.group("Workspace");
  f("workspace_root", workspace_root, "directory of all runs").non_semantic();
  f("lineage", lineage, "first part of a run's directory").non_semantic();
  f("experiment", experiment, "name of the experiment").non_semantic();
  f("name", name, "display name; unset: <lineage>-<experiment>").non_semantic();
  f("auto_resume", auto_resume, "continue from the latest checkpoint of this config, if any").non_semantic();
  f("resume", resume, "checkpoint to continue from; takes precedence over auto_resume").non_semantic();
  f("pretrained", pretrained, "checkpoint to take the model's weights from").non_semantic();
  f("pretrained_strict", pretrained_strict, "require that all weights of `pretrained` and of the model match")
      .non_semantic();
  f("pretrained_key", pretrained_key, "key of the weights in `pretrained`, joined by dots; unset: searched")
      .non_semantic();
  f("pretrained_rename", pretrained_rename, "names of `pretrained` to replace, in order").non_semantic();
  f("pretrained_skip", pretrained_skip,
    "patterns of the model's weights that `pretrained` lacks: these keep their values")
      .non_semantic();
  f("checkpoint", checkpoint, "checkpoints").non_semantic();

  detail::add_logging_fields(f, *this);

  f.group("Tools");
  f("find_lr", find_lr, "find a learning rate instead of training: --find_lr").non_semantic();
  f("find_batch_size", find_batch_size, "find the largest batch instead of training: --find_batch_size").non_semantic();

  f.group("Process");
  f("stack", stack, "parallelism of the run, or a name of the program; auto with parallel.axes: parallel, not ddp")
      .choices(stack_names())
      .synonym("auto", "ddp")
      .synonym("torch", "ddp")
      .synonym("ds", "deepspeed")
      .refuse("graph", "graph compilation, which is Python's");
  f("comm", comm, "timeouts, and checks of collectives").non_semantic();
  f("parallel", parallel, "how processes divide the work");
  f("ddp", ddp, "data parallel training").non_semantic();
  f("fsdp", fsdp, "sharded parameters, with stack: fsdp");
  f("deepspeed", deepspeed, "configuration of DeepSpeed, or its JSON file, with a runner that reads it")
      .alias("deepspeed_config");
  f("ft", ft, "continue training when a process dies").non_semantic();
  detail::add_meeting_fields(f, *this);
  f("device", device, "auto, cpu, cuda or cuda:<index>; auto is cuda if available").case_insensitive().non_semantic();
  f("num_threads", num_threads, "threads of LibTorch's kernels, which run() sets").at_least(1).non_semantic();
  f("compile", compile, "record the kernel calls of a step and replay them: the same bits, faster").non_semantic();
  f("allocator", allocator, "keep: reuse large blocks of host memory; system: return them at once")
      .choices({"keep", "system"})
      .non_semantic();
  f("flush_denormals", flush_denormals, "treat denormal numbers as zero: faster on CPUs, changes last bits");
  detail::reserve(f, detail::reserved_keys().process);
}

void RunnerConfig::base_post(const std::vector<std::string>& changed) {
  const auto given = [&](std::string_view key) {
    return std::find(changed.begin(), changed.end(), key) != changed.end();
  };
  if (steps && given("steps") && !given("epochs")) {
    epochs.reset();
  } else if (epochs && given("epochs") && !given("steps")) {
    steps.reset();
  }
  if (!deepspeed.is_null() && stack == "auto") {
    stack = "deepspeed";
  }
  detail::check_tools(*this, changed);
}

void RunnerConfig::base_validate() const {
  static constexpr std::string_view where = "config.validate";
  check<ConfigError>(!steps || !epochs, where, "expected at most one of 'steps' and 'epochs', got steps ",
                     steps.value_or(0), " and epochs ", epochs.value_or(0));
  check<ConfigError>(!evaluate_interval || !epochs, where,
                     "expected 'evaluate_interval' with 'steps', got it with 'epochs', where every epoch is evaluated");
  detail::check_processes(*this);
  detail::check_deepspeed(*this);
  heartbeat.check();
  detail::check_logging(*this);
  check<ConfigError>(min_delta == 0 || std::isfinite(patience), where,
                     "expected 'patience' with 'min_delta', got none");
  check<ConfigError>(!time_limit || time_limit->seconds > 0, where, "expected 'time_limit' above 0, got ",
                     time_limit.value_or(Duration()).seconds);
  detail::check_tools(*this);
  check<ConfigError>(!find_lr.enabled || !find_batch_size.enabled, where,
                     "expected one of 'find_lr' and 'find_batch_size', got both");
  for (const auto& [set, key] : {std::pair(pretrained_key.has_value(), "pretrained_key"),
                                 std::pair(!pretrained_rename.empty(), "pretrained_rename"),
                                 std::pair(pretrained_skip.has_value(), "pretrained_skip")}) {
    check<ConfigError>(!set || pretrained, where, "expected 'pretrained' with '", key, "', got none");
  }
  for (std::size_t i = 0; i < pretrained_rename.size(); ++i) {
    check<ConfigError>(!pretrained_rename[i].pattern.empty(), where, "expected a pattern for 'pretrained_rename[", i,
                       "]', got none");
  }
  check<ConfigError>(is_device(device), where, "expected auto, cpu, cuda or cuda:<index> for 'device', got ",
                     quote(device));
  const auto check_sched = [](const optim::SchedulerSpec& spec, const std::string& key) {
    check<ConfigError>(!spec.final_lr_ratio || !spec.final_lr, where, "expected at most one of '", key,
                       ".final_lr_ratio' and '", key, ".final_lr', got both");
  };
  const auto check_groups = [](const optim::OptimizerSpec& spec, const std::string& key) {
    for (std::size_t i = 0; i < spec.param_groups.size(); ++i) {
      check<ConfigError>(!spec.param_groups[i].pattern.empty(), where, "expected a pattern for '", key,
                         ".param_groups[", i, "]', got none");
    }
  };
  check_sched(sched, "sched");
  for (const auto& [model, spec] : sched.models) {
    check_sched(spec, concat("sched.", model));
  }
  check_groups(optim, "optim");
  for (const auto& [model, spec] : optim.models) {
    check_groups(spec, concat("optim.", model));
  }
  detail::check_precision(*this);
  check_average(ema, "ema");
  check_average(swa, "swa");
  check_anneal(swa);
}

}  // namespace danling::inline v0
