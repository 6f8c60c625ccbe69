// RunnerConfig: every setting of a runner.
#include <algorithm>
#include <danling/core/error.hpp>
#include <danling/runner/runner_config.hpp>

#include "runner/reserved_keys.hpp"

namespace danling::inline v0 {
namespace {

bool is_device(const std::string& name) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const std::string cuda = "cuda:";
  return name == "auto" || name == "cpu" || name == "cuda" ||
         (name.starts_with(cuda) && name.size() > cuda.size() && name.size() <= cuda.size() + 3 &&
          std::all_of(name.begin() + 5, name.end(), digit));
}

}  // namespace

void ParamGroupConfig::fields(Fields& f) {
  f("pattern", pattern, "regular expression searched for in parameter names");
  f("lr", lr, "learning rate").at_least(0);
  f("weight_decay", weight_decay, "weight decay").at_least(0);
  f("momentum", momentum, "momentum (SGD)").at_least(0);
  f("dampening", dampening, "dampening of momentum (SGD)");
  f("nesterov", nesterov, "Nesterov momentum (SGD)");
  f("betas", betas, "decay rates of the moments (Adam, AdamW)").range(0, 1);
  f("eps", eps, "added to the denominator (Adam, AdamW)").at_least(0);
  f("amsgrad", amsgrad, "AMSGrad variant (Adam, AdamW)");
  f("maximize", maximize, "maximise instead of minimise");
  f("lr_multiplier", lr_multiplier, "times optim.lr").at_least(0);
  f("weight_decay_multiplier", weight_decay_multiplier, "times optim.weight_decay").at_least(0);
  f("beta1", beta1, "instead of the first of optim.betas").range(0, 1);
  f("beta2", beta2, "instead of the second of optim.betas").range(0, 1);
}

void OptimConfig::fields(Fields& f) {
  f("type", type, "optimizer: sgd, adam, adamw, or one that the program registered; unset builds none").any_case();
  f("lr", lr, "learning rate").at_least(0);
  f("weight_decay", weight_decay, "weight decay").at_least(0);
  f("momentum", momentum, "momentum (SGD)").at_least(0);
  f("dampening", dampening, "dampening of momentum (SGD)");
  f("nesterov", nesterov, "Nesterov momentum (SGD)");
  f("betas", betas, "decay rates of the moments (Adam, AdamW)").range(0, 1);
  f("eps", eps, "added to the denominator (Adam, AdamW)").at_least(0);
  f("amsgrad", amsgrad, "AMSGrad variant (Adam, AdamW)");
  f("maximize", maximize, "maximise instead of minimise");
  f("fused", fused, "use LibTorch's fused kernels where they are safe");
  f("param_groups", param_groups, "options by parameter name; the first pattern that matches counts");
  detail::reserve(f, detail::reserved_keys().optim);
}

void SchedConfig::fields(Fields& f) {
  f("type", type, "schedule: linear, cosine, constant, step, or one that the program registered; unset builds none")
      .any_case();
  f("interval", interval, "what advances the schedule; unset: step").choices({"step", "epoch", "validation"});
  f("total_steps", total_steps, "length of the schedule; unset: that of the run").at_least(1);
  f("warmup_steps", warmup_steps, "steps of warm-up; unset: total_steps / 20").at_least(0);
  f("cooldown_steps", cooldown_steps, "steps of cool-down; unset: total_steps / 5").at_least(0);
  f("final_lr_ratio", final_lr_ratio, "final learning rate relative to the initial one; unset: 1e-3").at_least(0);
  f("final_lr", final_lr, "final learning rate, instead of final_lr_ratio").at_least(0);
  f("min_lr", min_lr, "least learning rate; unset: 1e-9").at_least(0);
  f("scaling", scaling, "how progress maps to a rate; unset: percentile with final_lr_ratio, else numerical")
      .choices({"percentile", "numerical"});
  f("step_size", step_size, "steps between two decays (step)").at_least(1);
  f("gamma", gamma, "factor of a decay (step)");
  f("monitor", monitor,
    "metric for a schedule that needs one: <split>.<metric>, or a metric of score_split; unset: score_name");
  detail::reserve(f, detail::reserved_keys().sched);
}

void DataloaderOptions::fields(Fields& f) {
  f("batch_size", batch_size,
    "samples per batch and process; unset: what the sample's type declares (train_batch_size for splits that train, "
    "val_batch_size for all others), or 1")
      .at_least(1);
  f("shuffle", shuffle, "draw samples in random order; unset: for splits that train");
  f("drop_last", drop_last, "leave out an incomplete last batch; unset: for splits that train");
  // Who reads the batches, and how far ahead, changes none of them: a run resumes with other workers.
  f("num_workers", num_workers, "threads that read batches ahead; unset: what the sample's type declares, or 0")
      .at_least(0)
      .non_semantic();
  f("prefetch_factor", prefetch_factor, "batches read ahead for each worker; unset: 2").at_least(1).non_semantic();
  f("persistent_workers", persistent_workers, "keep the workers from epoch to epoch; unset: false").non_semantic();
  f("pin_memory", pin_memory, "put batches in page-locked memory, for copies to a GPU; unset: false").non_semantic();
  f("snapshot_every_n_steps", snapshot_every_n_steps, "batches between snapshots of a stream's state; unset: 1")
      .at_least(1)
      .non_semantic();
  f("in_order", in_order, "deliver batches in the order of the epoch; otherwise as workers have them; unset: true");
}

void DataloaderConfig::fields(Fields& f) {
  DataloaderOptions::fields(f);
  f.others("split", splits, "overrides for one split, such as --dataloader.train.shuffle false");
}

DataloaderOptions DataloaderConfig::for_split(const std::string& split) const {
  auto out = static_cast<const DataloaderOptions&>(*this);  // without the splits
  const auto found = splits.find(split);
  if (found == splits.end()) {
    return out;
  }
  const DataloaderOptions& own = found->second;
  if (own.num_workers == 0) {
    out.prefetch_factor.reset();
    out.persistent_workers.reset();
  }
  const auto override_with = [&]<class T>(std::optional<T> DataloaderOptions::*option) {
    if (own.*option) {
      out.*option = own.*option;
    }
  };
  override_with(&DataloaderOptions::batch_size);
  override_with(&DataloaderOptions::shuffle);
  override_with(&DataloaderOptions::drop_last);
  override_with(&DataloaderOptions::num_workers);
  override_with(&DataloaderOptions::prefetch_factor);
  override_with(&DataloaderOptions::persistent_workers);
  override_with(&DataloaderOptions::pin_memory);
  override_with(&DataloaderOptions::in_order);
  override_with(&DataloaderOptions::snapshot_every_n_steps);
  return out;
}

void CheckpointConfig::fields(Fields& f) {
  f("dir_name", dir_name, "directory of checkpoints below the run");
  f("interval", interval,
    "epochs or steps between saves; 0: at the end alone; unset: every epoch, or 1/20 of the steps")
      .at_least(0);
  f("keep_latest_k", keep_latest_k,
    "newest history checkpoints to keep; 0 keeps all, unless one of the next two is set")
      .at_least(0);
  f("keep_best_k", keep_best_k, "history checkpoints with the best scores to keep too").at_least(0);
  f("keep_every_hours", keep_every_hours, "keep the first history checkpoint of every so many hours too").at_least(0);
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
  f("backend", backend, "format; auto means file").choices({"auto", "file"}).refuse("dcp", "sharded checkpoints");
  f("wait_timeout", wait_timeout, "seconds to wait at the end for writes that have not finished; unset: no limit")
      .at_least(0);
  f("on_error", on_error, "what a failed save does: continue training, or stop").choices({"continue", "stop"});
  f("export_safetensors", export_safetensors, "write model.safetensors beside model.pth");
  f("async_enabled", async_enabled, "write checkpoints while training goes on");
  f("async_mode", async_mode, "disabled, async, or async_with_pinned_mem; unset: by async_enabled")
      .choices({"disabled", "async", "async_with_pinned_mem"});
  detail::reserve(f, detail::reserved_keys().checkpoint);
}

void RunnerConfig::fields(Fields&) {}

void RunnerConfig::base_fields(Fields& f) {
  f.group("Reproducibility");
  f("seed", seed, "seed of every generator; unset: a new one, which is logged").at_least(0);
  f("deterministic", deterministic, "use deterministic kernels only");

  f.group("Progress (at most one of epochs and steps)");
  f("epochs", epochs, "train until this epoch").at_least(0).non_semantic();
  f("steps", steps, "train until this optimizer step").at_least(0).non_semantic();
  f("accum_steps", accum_steps, "batches per optimizer step").at_least(1);

  f.group("Evaluation");
  f("train_splits", train_splits, "splits to train on; unset: those of the datasets that train");
  f("evaluate_splits", evaluate_splits, "splits to evaluate; unset: the others");
  f("evaluate_interval", evaluate_interval,
    "steps between evaluations of whole splits, with `steps`; unset: one at the end, of a part of them")
      .at_least(1)
      .non_semantic();
  f("test_splits", test_splits, "splits evaluated once at the end and reported apart, never used for selection")
      .non_semantic();
  f("score_split", score_split, "split that selects the best model; unset: val, validate, or the first").non_semantic();
  f("score_name", score_name, "metric that selects the best model").non_semantic();
  f("patience", patience, "epochs without a better score before training stops").at_least(0).non_semantic();
  // Watching more or less trains the same model: a run resumes with other metrics, between epochs.
  f("metrics", metrics, "what is measured; with a type, in place of the metrics that the program sets").non_semantic();

  f.group("Optimization");
  f("precision", precision, "autocast precision; unset: fp32")
      .choices({"fp32", "bf16"})
      .synonym("float32", "fp32")
      .synonym("bfloat16", "bf16")
      .refuse("fp16", "fp16, which needs gradient scaling")
      .refuse("float16", "fp16, which needs gradient scaling")
      .refuse("fp8", "fp8");
  f("max_grad_norm", max_grad_norm, "clip gradients to this norm; unset: do not").above(0);
  f("max_grad_value", max_grad_value, "clip each gradient to this magnitude; unset: do not").above(0);
  f("skip_nonfinite_grad", skip_nonfinite_grad, "skip updates whose gradients are infinite or not a number");
  f("on_nonfinite", on_nonfinite, "what a training loss that is infinite or not a number does: warn, or stop the run")
      .choices({"warn", "stop"})
      .non_semantic();
  f("optim", optim, "optimizer; unset options keep its own defaults").alias("optimizer");
  f("sched", sched, "learning rate schedule").alias("scheduler");

  f.group("Data");
  f("dataloader", dataloader, "loaders");

  f.group("Workspace");
  f("workspace_root", workspace_root, "directory of all runs").non_semantic();
  f("lineage", lineage, "first part of a run's directory").non_semantic();
  f("experiment", experiment, "name of the experiment").non_semantic();
  f("name", name, "display name; unset: <lineage>-<experiment>").non_semantic();
  f("auto_resume", auto_resume, "continue from the latest checkpoint of this config, if any").non_semantic();
  f("resume", resume, "checkpoint to continue from; wins over auto_resume").non_semantic();
  f("pretrained", pretrained, "checkpoint to take the model's weights from").non_semantic();
  f("checkpoint", checkpoint, "checkpoints").non_semantic();

  f.group("Logging");
  f("record", record,
    "write the run to disk: its directory with log, metrics, results and checkpoints; false writes nothing at all")
      .non_semantic();
  f("log", log, "write a log file").non_semantic();
  f("log_interval", log_interval, "steps between log lines; 0: none; unset: 1/100 of the steps")
      .at_least(0)
      .non_semantic();
  f("console", console, "report progress on the console").non_semantic();
  detail::reserve(f, detail::reserved_keys().logging);

  f.group("Process");
  f("stack", stack, "kind of runner; auto and torch mean ddp")
      .choices({"auto", "ddp", "torch"})
      .synonym("auto", "ddp")
      .synonym("torch", "ddp")
      .refuse("graph", "graph compilation, which is Python's")
      .refuse("deepspeed", "DeepSpeed, which is Python's")
      .refuse("ds", "DeepSpeed, which is Python's")
      .refuse("parallel", "model parallelism");
  f("device", device, "auto, cpu, cuda or cuda:<index>; auto is cuda where there is one").non_semantic();
  f("num_threads", num_threads, "threads of LibTorch's kernels; unset: LibTorch's choice").at_least(1).non_semantic();
  f("allocator", allocator, "keep: hold on to large blocks of host memory; system: give them back at once")
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
}

void RunnerConfig::base_validate() const {
  static constexpr std::string_view where = "config.validate";
  check<ConfigError>(!steps || !epochs, where, "expected at most one of 'steps' and 'epochs', got steps ",
                     steps.value_or(0), " and epochs ", epochs.value_or(0));
  check<ConfigError>(is_device(device), where, "expected auto, cpu, cuda or cuda:<index> for 'device', got ",
                     quote(device));
  check<ConfigError>(!sched.final_lr_ratio || !sched.final_lr, where,
                     "expected at most one of 'sched.final_lr_ratio' and 'sched.final_lr', got both");
  const auto check_betas = [](const std::optional<std::vector<double>>& betas, const std::string& key) {
    check<ConfigError>(!betas || betas->size() == 2, where, "expected two numbers for ", quote(key), ", got ",
                       betas ? betas->size() : 0);
  };
  check_betas(optim.betas, "optim.betas");
  for (std::size_t i = 0; i < optim.param_groups.size(); ++i) {
    const std::string key = concat("optim.param_groups[", i, "]");
    check<ConfigError>(!optim.param_groups[i].pattern.empty(), where, "expected a pattern for ", quote(key),
                       ", got none");
    check_betas(optim.param_groups[i].betas, key + ".betas");
  }
}

std::string_view RunnerConfig::stack_name() const { return "ddp"; }

std::string_view RunnerConfig::precision_name() const {
  if (!precision) return "";
  return *precision == "bf16" || *precision == "bfloat16" ? "bf16" : "fp32";
}

}  // namespace danling::inline v0
