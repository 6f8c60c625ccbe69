// RunnerConfig: every setting of a runner, under DanLing's names, with DanLing's defaults.
#pragma once

#include <cstdint>
#include <danling/config/config.hpp>
#include <danling/runner/metrics_config.hpp>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace danling::inline v0 {

/// Options of the parameters whose names match `pattern`. Unset options keep those of the optimizer.
struct ParamGroupConfig : Section {
  std::string pattern;  ///< regular expression, searched for in the parameter's full name
  std::optional<double> lr, weight_decay, momentum, dampening, eps;
  std::optional<std::vector<double>> betas;
  std::optional<bool> nesterov, amsgrad, maximize;
  std::optional<double> lr_multiplier, weight_decay_multiplier;  ///< times `optim.lr`, `optim.weight_decay`
  std::optional<double> beta1, beta2;                            ///< instead of one of `optim.betas`
  void fields(Fields& f) override;
};

/// `optim`: unset options keep the optimizer's own defaults; without `type` no optimizer is built.
struct OptimConfig : Section {
  std::optional<std::string> type;
  std::optional<double> lr, weight_decay, momentum, dampening, eps;
  std::optional<std::vector<double>> betas;
  std::optional<bool> nesterov, amsgrad, maximize;
  bool fused = true;  ///< DanLing: null
  std::optional<bool> foreach, capturable, differentiable;
  std::vector<ParamGroupConfig> param_groups;  ///< the first group whose pattern matches takes a parameter
  void fields(Fields& f) override;
};

/// `sched`: unset options keep the scheduler's own defaults; without `type` no scheduler is built.
struct SchedConfig : Section {
  std::optional<std::string> type, interval, monitor;
  std::optional<std::int64_t> total_steps, warmup_steps, cooldown_steps;
  std::optional<double> final_lr_ratio, final_lr, min_lr;
  std::optional<std::string> scaling;
  std::optional<std::int64_t> step_size;
  std::optional<double> gamma;
  std::optional<std::vector<std::int64_t>> milestones;
  std::optional<std::int64_t> T_max, T_0, T_mult, patience;
  std::optional<double> eta_min, max_lr, base_lr, factor;
  std::optional<std::string> mode;
  void fields(Fields& f) override;
};

/// What a loader is built from. Unset: batch_size (`train_batch_size` for splits that train, `val_batch_size` for all
/// others) and num_workers are what the sample's type declares, or 1 and 0; shuffle and drop_last hold for the splits
/// that train; the others are data::LoaderOptions' own.
struct DataloaderOptions : Section {
  std::optional<std::int64_t> batch_size, num_workers, prefetch_factor, snapshot_every_n_steps;
  std::optional<bool> shuffle, drop_last, pin_memory, persistent_workers, in_order;
  void fields(Fields& f) override;
};

/// `dataloader`, with overrides by split: `dataloader.train.shuffle: false`.
struct DataloaderConfig : DataloaderOptions {
  std::map<std::string, DataloaderOptions> splits;
  /// The options of one split: its overrides over the common ones. A split that says `num_workers: 0` does not inherit
  /// what needs workers.
  DataloaderOptions for_split(const std::string& split) const;
  void fields(Fields& f) override;
};

/// `checkpoint`.
struct CheckpointConfig : Section {
  std::string dir_name = "checkpoints";
  std::optional<std::int64_t> interval;  ///< epochs or steps; unset: every epoch, or 1/20 of the steps
  std::int64_t keep_latest_k = 0;        ///< history checkpoints; 0 keeps all, unless one of the next two is set
  std::int64_t keep_best_k = 0;          ///< not in DanLing
  double keep_every_hours = 0.0;         ///< not in DanLing
  bool load_only = false;
  std::vector<std::string> exclude_from_loading;
  bool last_save_model_only = false;
  std::optional<std::string> export_dtype;
  std::string backend = "auto";
  std::optional<double> wait_timeout;  ///< seconds
  std::string on_error = "continue";   ///< DanLing's behaviour; "stop" is not in DanLing
  bool export_safetensors = true;      ///< not in DanLing
  bool async_enabled = true;
  std::optional<std::string> async_mode;  ///< wins over async_enabled
  bool dedicated_async_process_group = true;
  std::string async_process_group_backend = "gloo";
  bool enable_ft_dataloader_checkpoints = false;
  std::optional<std::string> ft_replica_id;
  std::string ft_dataloader_checkpoint_prefix = "ft-replica";
  void fields(Fields& f) override;
};

// Sections whose features are not there yet: their keys are known, so that setting one is refused by name.

struct WandbConfig : Section {
  bool enabled = false;
  std::optional<std::string> project, entity, group, name, job_type, dir, mode;
  std::vector<std::string> tags;
  void fields(Fields& f) override;
};

struct FaultToleranceConfig : Section {
  bool enabled = false;
  std::string process_group = "gloo";
  std::int64_t process_group_timeout_ms = 10000, replica_id = 0, group_size = 1, min_replica_size = 1;
  void fields(Fields& f) override;
};

struct CompileConfig : Section {
  bool enable = false;
  std::optional<std::string> backend, mode, options;
  std::optional<bool> fullgraph, dynamic;
  std::optional<std::string> optimize_ddp = "ddp_optimizer", precompile_artifact_dir, memory_policy;
  void fields(Fields& f) override;
};

struct CommConfig : Section {
  std::optional<std::int64_t> init_timeout_seconds, train_timeout_seconds;
  void fields(Fields& f) override;
};

struct GcConfig : Section {
  std::optional<std::int64_t> interval;
  std::int64_t generation = 1;
  bool disable_automatic = true;
  void fields(Fields& f) override;
};

struct ProfilingConfig : Section {
  bool enabled = false;
  std::int64_t wait = 1, warmup = 1, active = 3;
  std::optional<std::int64_t> repeat;
  bool record_shapes = false, profile_memory = false, with_stack = false, with_flops = false;
  std::string trace_dir = "profiles";
  void fields(Fields& f) override;
};

struct HeartbeatConfig : Section {
  bool enabled = false;
  double interval_seconds = 60.0;
  std::string dir_name = "heartbeats";
  void fields(Fields& f) override;
};

struct FsdpConfig : Section {
  bool enabled = false;
  std::optional<std::string> mesh, reshard_after_forward, shard_placement_fn, mp_policy, offload_policy, ignored_params;
  void fields(Fields& f) override;
};

struct ParallelAxesConfig : Section {
  std::int64_t replicate = 1, shard = 1, context = 1, pipeline = 1, tensor = 1, expert = 1, expert_tensor = 1;
  void fields(Fields& f) override;
};

struct ParallelConfig : Section {
  ParallelAxesConfig axes;
  std::string pipeline_schedule = "1F1B";
  std::int64_t pipeline_microbatch_size = 1;
  std::optional<std::int64_t> pipeline_n_microbatches;
  std::optional<std::string> module_fqns_per_model_part;
  bool use_device_mesh = true;
  std::optional<std::string> mesh_device_type;
  bool allow_degree_change = false;
  std::optional<bool> loss_parallel;
  void fields(Fields& f) override;
};

struct Fp8Config : Section {
  std::optional<bool> enabled;
  std::optional<std::string> recipe, recipe_cls, recipe_kwargs, group;
  void fields(Fields& f) override;
};

/// The settings of a runner. Derive from it and list your own members in fields(); these here are listed by the base.
/// The config says what the user asked for: a runner keeps what it derives (a generated seed, inferred splits) itself.
struct RunnerConfig : Config {
  // Stack
  std::string stack = "auto";
  std::optional<std::string> backend, init_method;

  // Reproducibility
  std::optional<std::int64_t> seed;  ///< unset: the runner generates one
  bool deterministic = false;

  // Progress: at most one of steps and epochs
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> epochs;
  std::int64_t accum_steps = 1;

  // Model evaluation
  std::optional<std::vector<std::string>> train_splits, evaluate_splits;  ///< unset: inferred from the datasets
  std::optional<std::vector<std::string>> test_splits;                    ///< not in DanLing
  std::optional<std::string> score_split;                                 ///< unset: inferred once
  std::string score_name = "loss";
  double patience = std::numeric_limits<double>::infinity();
  MetricsConfig metrics;  ///< not in DanLing

  // Optimization
  OptimConfig optim;
  SchedConfig sched;
  std::optional<std::string> precision;
  std::optional<double> max_grad_norm, max_grad_value;
  bool skip_nonfinite_grad = false;
  Fp8Config fp8;
  std::optional<std::string> deepspeed;

  // Data
  DataloaderConfig dataloader;

  // Workspace
  std::string workspace_root = "experiments";
  std::string lineage = "lin", experiment = "exp";
  std::optional<std::string> name;  ///< unset: `<lineage>-<experiment>`
  bool auto_resume = false;
  std::optional<std::string> resume, pretrained;
  CheckpointConfig checkpoint;

  // Logging
  bool log = true;
  std::optional<std::int64_t> log_interval;  ///< unset: 1/100 of the steps
  bool tensorboard = false;
  WandbConfig wandb;
  ProfilingConfig profiling;
  HeartbeatConfig heartbeat;

  // Distribution and compilation
  CommConfig comm;
  FaultToleranceConfig ft;
  FsdpConfig fsdp;
  ParallelConfig parallel;
  CompileConfig compile;
  GcConfig gc;

  // Process: not in DanLing
  std::string device = "auto";
  std::optional<std::int64_t> num_threads;
  std::string allocator = "keep";
  bool flush_denormals = false;
  bool console = true;

  /// The user's own fields; none here.
  void fields(Fields& f) override;
  void base_fields(Fields& f) override;
  void base_validate() const override;
  /// A boundary that was given replaces the program's default one: `--steps 100` unsets `epochs`, and the reverse.
  void base_post(const std::vector<std::string>& changed) override;

  /// `stack` by its one name: "ddp".
  std::string_view stack_name() const;
  /// `precision` by its short name: "bf16", "fp32", or empty when unset.
  std::string_view precision_name() const;
};

}  // namespace danling::inline v0
