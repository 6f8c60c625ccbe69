// RunnerConfig: all settings of a runner, with DanLing's names and defaults.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/checkpoint/options.hpp>
#include <danling/config/config.hpp>
#include <danling/config/tree.hpp>
#include <danling/core/quantity.hpp>
#include <danling/data/collation.hpp>
#include <danling/metrics/spec.hpp>
#include <danling/nn/lora_options.hpp>
#include <danling/nn/loss_options.hpp>
#include <danling/optim/averaging_options.hpp>
#include <danling/optim/grad_scaler_options.hpp>
#include <danling/optim/options.hpp>
#include <danling/runner/compile_options.hpp>
#include <danling/runner/finder_options.hpp>
#include <danling/runner/heartbeat_options.hpp>
#include <danling/runner/logging_options.hpp>
#include <danling/runner/process_options.hpp>
#include <danling/runner/profiling_options.hpp>
#include <danling/telemetry/log_options.hpp>

namespace danling::inline v0 {

/// `optim.<model>`: the optimizer of one of several models.
struct ModelOptimConfig : optim::OptimizerSpec {
  // Unset: those of the run. `.inf` disables clipping.
  std::optional<double> max_grad_norm, max_grad_value;
  std::optional<std::int64_t> accum_steps;
  void fields(Fields& f);
};

/// `optim`, with sections for several models: `optim.generator.lr`. A section inherits unset options, including `type`,
/// from the common section.
struct OptimConfig : optim::OptimizerSpec {
  OptimConfig() { fused = true; }  // DanLing: null
  std::map<std::string, ModelOptimConfig> models;
  /// The options of one model's optimizer.
  ModelOptimConfig for_name(const std::string& model) const;
  void fields(Fields& f);
};

/// `sched`, with sections for several models as in `optim`.
struct SchedConfig : optim::SchedulerSpec {
  std::map<std::string, optim::SchedulerSpec> models;
  optim::SchedulerSpec for_name(const std::string& model) const;
  void fields(Fields& f);
};

/// `ema` or `swa`, with sections for several models: `ema.generator.enabled`. A section inherits unset options from the
/// common section.
template <class Options>
struct AverageSection : Options {
  std::optional<bool> enabled;  ///< unset: false
  void fields(Fields& f);
};
template <class Options>
struct AverageConfig : AverageSection<Options> {
  std::map<std::string, AverageSection<Options>> models;
  AverageSection<Options> for_name(const std::string& model) const;
  void fields(Fields& f);
};
using EMAConfig = AverageConfig<optim::EMAOptions>;
using SWAConfig = AverageConfig<optim::SWAOptions>;
/// `lora`, with sections for several models as in `optim`.
struct LoraConfig : nn::LoraOptions {
  std::map<std::string, nn::LoraOptions> models;
  nn::LoraOptions for_name(const std::string& model) const;
  void fields(Fields& f);
};

/// `pretrained_rename`: replaces every match of `pattern` in a name of the file with `replacement`.
struct RenameRule {
  std::string pattern, replacement;
  void fields(Fields& f);
};

/// `losses.<name>`: one term of the criterion. Not in DanLing.
struct LossConfig : nn::LossOptions {
  std::optional<std::string> type;  ///< in nn::losses(); unset: a term that the program has set
  std::optional<double> weight;     ///< unset: the weight of the program's term, or 1
  std::optional<std::string>
      schedule;                ///< in optim::curves(): the weight as a function of updates, between `from` and `weight`
  std::optional<double> from;  ///< weight until update `begin`; 0
  std::optional<std::int64_t> begin;   ///< updates before the schedule; 0
  std::optional<std::int64_t> length;  ///< updates of the schedule; unset: to the end of the run
  void fields(Fields& f);
};

/// `losses`: terms by name. With types, they replace the program's criterion; without, they set weights of its terms.
struct LossesConfig {
  std::map<std::string, LossConfig> terms;
  void fields(Fields& f);
};

/// `distill`: the loss between the logits of the model and of the runner's `teacher`. Not in DanLing.
struct DistillConfig {
  std::optional<std::string> checkpoint;  ///< weights of the teacher; unset: the program has loaded them
  std::optional<bool> strict;             ///< true
  std::optional<double> temperature;      ///< 2
  std::optional<double> weight;           ///< 1
  void fields(Fields& f);
};

/// `scaler`: dynamic loss scaling for fp16.
struct ScalerConfig : optim::GradScalerOptions {
  std::optional<bool> enabled;  ///< unset: with `precision: fp16`
  void fields(Fields& f);
};

/// `spike`: policy for a training loss far above the previous ones.
struct SpikeConfig {
  std::optional<std::string> action;   ///< warn, skip, stop or rollback; unset: none
  std::optional<double> threshold;     ///< standard deviations above the mean; 6
  std::optional<std::int64_t> window;  ///< updates for mean and deviation; 100
  void fields(Fields& f);
};

/// Options of a loader. Unset: batch_size (`train_batch_size` for training splits, `val_batch_size` for others) and
/// num_workers as the sample's type declares, or else 1 and 0; shuffle and drop_last true for training splits; others
/// as in data::LoaderOptions.
struct DataloaderOverrides : Section {
  std::optional<std::int64_t> batch_size, num_workers, prefetch_factor, snapshot_every_n_steps;
  std::optional<bool> shuffle, drop_last, pin_memory, persistent_workers, in_order;
  std::optional<data::Collation> collation;  ///< not in DanLing
  void fields(Fields& f) override;
};

using DataloaderOptions [[deprecated("use DataloaderOverrides")]] = DataloaderOverrides;

/// `dataloader`, with overrides by split: `dataloader.train.shuffle: false`.
struct DataloaderConfig : DataloaderOverrides {
  std::map<std::string, DataloaderOverrides> splits;
  /// The options of one split: its overrides over the common options. A split with `num_workers: 0` does not inherit
  /// options that need workers.
  DataloaderOverrides for_split(const std::string& split) const;
  void fields(Fields& f) override;
};

/// `checkpoint`: options of the manager and of the runner. `interval` unset: every epoch; in step mode 1/20 of the
/// steps, or 8192 if their number is unknown.
struct CheckpointConfig : CheckpointOptions {
  CheckpointConfig() { async_enabled = export_safetensors = true; }
  std::string dir_name = "checkpoints";
  std::vector<std::string> exclude_from_loading;
  std::string backend = "auto";
  std::optional<double> wait_timeout;  ///< seconds
  std::string on_error = "continue";   ///< DanLing's behaviour; "stop" is not in DanLing
  std::string export_with = "last";    ///< not in DanLing
  bool export_script = true;           ///< not in DanLing
  void fields(Fields& f);
};

/// The settings of a runner. Derive from it and list your members in fields(); base_fields() lists those below. The
/// config holds only the user's settings: derived values (a generated seed, inferred splits) are members of the runner.
/// `--help` of a program and docs/config.md describe each key, with its values and default.
struct RunnerConfig : Config {
  RunnerConfig();
  RunnerConfig(const RunnerConfig& other);
  RunnerConfig& operator=(const RunnerConfig& other);
  ~RunnerConfig() override;

  // Stack
  std::string stack = "auto";
  CommConfig comm;
  ParallelConfig parallel;
  FsdpConfig fsdp;
  DdpConfig ddp;                           ///< not in DanLing
  ConfigTree deepspeed;                    ///< a mapping, or the path of a JSON file; see deepspeed_config.hpp
  std::optional<int> zero_stage;           ///< not a key: the ZeRO stage that a DeepSpeedRunner read from `deepspeed`
  std::optional<std::string> backend;      ///< gloo; unset: gloo
  std::optional<std::string> init_method;  ///< env:// or tcp://host:port; unset: INIT_METHOD, or env://
  FtConfig ft;

  // Reproducibility
  std::optional<std::int64_t> seed;  ///< unset: the runner generates one
  bool deterministic = false;
  std::optional<bool> tf32;  ///< unset: LibTorch's setting. Not in DanLing

  // Progress: at most one of steps and epochs
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> epochs;
  std::int64_t accum_steps = 1;
  std::optional<Duration> time_limit;  ///< not in DanLing

  // Model evaluation
  std::optional<std::vector<std::string>> train_splits, evaluate_splits;  ///< unset: inferred from the datasets
  std::optional<std::vector<std::string>> test_splits;                    ///< not in DanLing
  std::string test_with = "last";                                         ///< not in DanLing
  std::optional<std::int64_t> evaluate_interval;                          ///< not in DanLing
  std::optional<std::string> score_split;                                 ///< unset: inferred once
  std::string score_name = "loss";
  std::optional<std::string> score_mode;  ///< min or max; unset: as the metric declares. Not in DanLing
  double patience = std::numeric_limits<double>::infinity();
  double min_delta = 0.0;        ///< not in DanLing
  metrics::MetricsSpec metrics;  ///< not in DanLing

  // Optimization
  OptimConfig optim;
  SchedConfig sched;
  EMAConfig ema;    ///< not in DanLing, where the program updates the average
  SWAConfig swa;    ///< not in DanLing
  LoraConfig lora;  ///< not in DanLing
  std::optional<std::string> precision;
  LossesConfig losses;                 ///< not in DanLing
  DistillConfig distill;               ///< not in DanLing
  std::vector<std::string> recompute;  ///< not in DanLing
  std::optional<double> max_grad_norm, max_grad_value;
  bool skip_nonfinite_grad = false;
  ScalerConfig scaler;                        ///< not in DanLing, where bf16 needs none
  std::string on_nonfinite = "warn";          ///< not in DanLing
  SpikeConfig spike;                          ///< not in DanLing
  std::optional<std::int64_t> max_rollbacks;  ///< 3. Not in DanLing

  // Data
  DataloaderConfig dataloader;

  // Workspace
  std::string workspace_root = "experiments";
  std::string lineage = "lin", experiment = "exp";
  std::optional<std::string> name;  ///< unset: `<lineage>-<experiment>`
  bool auto_resume = false;
  std::optional<std::string> resume, pretrained;
  bool pretrained_strict = true;  ///< not in DanLing, whose load_pretrained takes `strict`
  // Not in DanLing: options of PretrainedOptions.
  std::optional<std::string> pretrained_key;
  std::vector<RenameRule> pretrained_rename;
  std::optional<std::vector<std::string>> pretrained_skip;
  CheckpointConfig checkpoint;

  // Logging
  bool record = true;  ///< not in DanLing
  bool log = true;
  LogLevel log_level = LogLevel::info;                  ///< not in DanLing
  std::string log_pattern{default_log_pattern};         ///< not in DanLing
  std::optional<MemorySize> log_max_size;               ///< unset: no rotation. Not in DanLing
  std::optional<std::int64_t> log_max_files;            ///< unset: 5. Not in DanLing
  std::optional<std::int64_t> log_interval;             ///< unset: 1/100 of the updates, or 1024 if unknown
  bool log_grad_norm = false, log_noise_scale = false;  ///< not in DanLing
  PerformanceConfig performance;
  bool tensorboard = false;
  WandbConfig wandb;
  MlflowConfig mlflow;                    ///< DanLing 0.4.8 has other keys
  OpenMetricsConfig openmetrics;          ///< not in DanLing
  bool csv = false;                       ///< not in DanLing
  std::int64_t histogram_interval = 100;  ///< updates. Not in DanLing
  ProfilingConfig profiling;
  HeartbeatConfig heartbeat;

  // Tools: not in DanLing; `dl::run` reads `enabled`
  FindLrConfig find_lr;
  FindBatchSizeConfig find_batch_size;

  // Process: not in DanLing
  std::string device = "auto";
  std::optional<std::int64_t> num_threads;
  CompileConfig compile;
  std::string allocator = "keep";
  bool flush_denormals = false;
  bool console = true;
  bool quiet = false;
  bool summary = false;

  /// The user's fields; empty here.
  void fields(Fields& f) override;
  void base_fields(Fields& f) override;
  void base_validate() const override;
  /// A boundary that the user sets replaces the program's default: `--steps 100` unsets `epochs`, and vice versa.
  void base_post(const std::vector<std::string>& changed) override;

  /// The models that have a section in `optim`, `sched`, `ema` or `swa`, sorted.
  std::vector<std::string> model_names() const;
  /// @throws ConfigError for such a section whose name is not in `models`
  void check_model_names(const std::vector<std::string>& models) const;
  /// Checks for options of `optim` or `sched` without a type, which have no effect. Returns a warning if the program
  /// `set` the optimizer or scheduler, else an empty text.
  /// @throws ConfigError if the program did not set it
  std::string check_optim(bool set) const;
  std::string check_sched(bool set) const;

  /// `stack` without synonyms: "ddp", "parallel" for "auto" with `parallel.axes`, or another name.
  std::string_view stack_name() const;
  /// `precision` by its short name: "fp32", "bf16", "fp16", "fp64", or empty when unset.
  std::string_view precision_name() const;
  /// True when losses are scaled.
  bool scales_loss() const { return scaler.enabled.value_or(precision_name() == "fp16"); }
};

}  // namespace danling::inline v0
