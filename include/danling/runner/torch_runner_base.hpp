// The loops of TorchRunner, compiled once for all batch types.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/data/batch_ref.hpp>
#include <danling/data/datum.hpp>
#include <danling/data/loader_base.hpp>
#include <danling/metrics/average_meters.hpp>
#include <danling/metrics/metrics.hpp>
#include <danling/optim/grad_scaler.hpp>
#include <danling/optim/optimizer.hpp>
#include <danling/optim/scheduler.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/runner/batch_report.hpp>
#include <danling/runner/compile_options.hpp>
#include <danling/runner/criterion.hpp>
#include <danling/runner/detail/loop_state.hpp>
#include <danling/runner/infer_stream.hpp>
#include <danling/runner/learner.hpp>
#include <danling/runner/metrics_handle.hpp>
#include <danling/runner/model.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/precision.hpp>
#include <danling/runner/window.hpp>

namespace danling::inline v0 {

struct BatchSizeReport;
struct LearningRateReport;
class LoopProgress;

namespace detail {
struct BatchParts;
class LoopFrame;
struct LossPolicyState;
class ModelAverages;
struct LossProbe;
}  // namespace detail
namespace nn {
struct ModelSummary;
}  // namespace nn

/// Trains, evaluates and infers. Users derive from `TorchRunner` (or `BasicTorchRunner<MyBatch>`), set the components
/// in their constructor and override hooks. Drivers (`train`, `evaluate`, `infer`, `step`) are not virtual.
class TorchRunnerBase : public BaseRunner {
 public:
  ~TorchRunnerBase() override;

  // ---- components: set them in the constructor of your class --------------------------------------------------------

  ModelHandle model;
  /// Further models by name, or all of them: a generator and a discriminator, an actor and a critic, a teacher. Each
  /// with trainable parameters gets an optimizer from `optim.<name>` and a schedule from `sched.<name>`, over the
  /// common sections; `optimizers["teacher"] = nullptr` keeps a model untrained, in evaluation mode. All are moved to
  /// the device, saved, resumed and exported. Your train_step calls backward(loss, name) and step(name).
  std::map<std::string, ModelHandle> models;
  /// Replaces `model` in evaluation and inference; your code updates it. Not needed with `ema.enabled` of the config.
  ModelHandle ema;
  /// One loss, or Losses: several weighted losses, each reported under "losses" as a pair (weight, raw value).
  CriterionHandle criterion;
  /// A teacher for distillation: the loss `distill` compares its logits with those of `model`. Frozen, in evaluation
  /// mode, with the weights of `distill.checkpoint`; not saved with the run.
  ModelHandle teacher;
  /// Built from `optim` of the config if empty.
  std::shared_ptr<optim::Optimizer> optimizer;
  /// Built from `sched` of the config if empty.
  std::shared_ptr<optim::Scheduler> scheduler;
  /// For `models`, by name.
  std::map<std::string, std::shared_ptr<optim::Optimizer>> optimizers;
  std::map<std::string, std::shared_ptr<optim::Scheduler>> schedulers;
  /// Loss scales of `model`, and of `models` by name. Built from `scaler` of the config if empty.
  std::shared_ptr<optim::GradScaler> scaler;
  std::map<std::string, std::shared_ptr<optim::GradScaler>> scalers;
  /// Metrics of training and evaluation, unless train_metrics or evaluate_metrics is set; `metrics.type` of the config
  /// replaces all three. The default steps update Metrics and BatchMetrics over the runner's batch type; your steps may
  /// update others. initialize() refuses names of the runner's numbers and of log lines: "loss", "lr", "epoch" etc.
  MetricsHandle metrics;
  MetricsHandle train_metrics;
  MetricsHandle evaluate_metrics;
  /// Averages of the split in progress: "loss" and "lr", which only the runner updates, and any that your steps update.
  AverageMeters meters;

  // ---- drivers: all ranks call them, with the same arguments
  // ---------------------------------------------------------

  /// Trains to the boundary of the config (`epochs` or `steps`), with evaluations and saves in between.
  /// @param train_splits, evaluate_splits  names; empty: those of the config or of the data
  /// @throws ConfigError for an unknown split, Stopped after a requested stop is saved
  const ResultHistory& train(const std::vector<std::string>& train_splits = {},
                             const std::vector<std::string>& evaluate_splits = {});

  /// Evaluates whole splits and logs the results; changes no training state. A split that also trains is read in the
  /// order of its epoch 0, without the records that `drop_last` excludes from training; it keeps its position.
  /// @throws ConfigError for an unknown split or none, Stopped after a stop request, StateError during another
  /// evaluation, and on several processes for a split that trains with `in_order: false`
  Result evaluate(const std::vector<std::string>& splits = {});
  Result evaluate_epoch(std::string_view split);  ///< evaluate() for one split, without the log line of all results
  /// Evaluates the first `steps` batches of each rank; by default a twentieth of the run's updates, at most the split.
  /// @throws DataError when the split has fewer batches on all ranks; ConfigError for an unknown or negative number
  Result evaluate_steps(std::string_view split, std::optional<std::int64_t> steps = std::nullopt);
  /// Evaluates `test_splits()` with the weights that `test_with` selects, then restores the weights of the model. The
  /// results never select the best checkpoint.
  Result test();
  const Result& test_result() const { return test_result_; }  ///< of the last test()
  /// Origin of the weights of test_result(): `epoch 30 (last)`.
  const std::string& tested_weights() const { return tested_weights_; }
  /// Origin of the weights in `model.pth`: `epoch 28 (best)`. Empty before it is saved.
  std::string exported_weights();
  std::string evaluated_average() const override;
  /// Counts of this process's steps with `compile.enable`; all 0 without it.
  CompileReport compile_report() const;
  bool has_trained() const { return has_trained_; }  ///< after train() or train_on_batch(), even if they threw

  /// Trains with a growing learning rate and reports the losses with a suggestion (runner/finders.hpp). Then restores
  /// all state, also after an exception; writes no checkpoint or log file. Call it before or after train(), on all
  /// ranks. Waits for the device at each update.
  /// @throws ConfigError without a training split, NonFiniteError, StateError inside training, Stopped after a signal
  LearningRateReport find_lr(const FindLrOptions& options);
  LearningRateReport find_lr();  ///< with `find_lr` of the config
  /// Trains with growing batches of the training splits until memory runs out: doubles the size, then bisects. Restores
  /// all state, as find_lr does. Only on one process.
  BatchSizeReport find_batch_size(const FindBatchSizeOptions& options);
  BatchSizeReport find_batch_size();  ///< with `find_batch_size` of the config

  /// Ends one micro-batch: counts it and, at the end of an accumulation window, calls `optimizer_step()`, counts the
  /// update and zeroes the gradients. `train_step` calls it once, after `backward`; the loop checks that.
  /// @throws StateError outside a training step
  void step();
  /// step() for one of `models`: zero or more times per micro-batch (for example a critic's inner loop). The
  /// micro-batch counts as one step of the run if it updates any model. A window closes after `accum_steps`
  /// micro-batches of the run, even if the last one has no step(), provided that the model had a backward pass in the
  /// window.
  /// @throws ConfigError for a name without an optimizer
  void step(const std::string& name);

  // ---- in a loop of the program, with BasicTorchRunner::train_on_batch and evaluate_on_batch ------------------------

  using BatchReport = danling::BatchReport;
  /// Ends the evaluation that evaluate_on_batch began. During training, between two accumulation windows, its averages
  /// become a row of the results, which can select the best checkpoint.
  /// @return the averages. @throws StateError without an evaluation
  Result finish_evaluation();
  /// Ends the training that train_on_batch began: closes an open accumulation window, appends the averages to the
  /// results and waits for the last checkpoint. If it throws, as on a full disk, call it again.
  /// @throws StateError without training
  const ResultHistory& finish_training();

  /// The layers of all models with their parameters, and output shapes, memory and FLOPs of a forward pass: runs
  /// evaluate_step on the first batch of `split`, by default of the first training split, which keeps its position.
  /// Not during training: it resets meters and leaves models in evaluation mode. `--summary` of `run` prints it.
  nn::ModelSummary summarize(std::string_view split = {});

  /// Parameters for the optimizer, with their names. Override it to freeze or add parameters. Called when:
  /// build_optimizer runs, once.
  virtual NamedTensors iter_optimizer_named_parameters() const;

  std::shared_ptr<void> gather_parameters(bool writes = false) override;

  State state_dict() override;
  void load_state_dict(const State& checkpoint) override;

 protected:
  template <std::derived_from<RunnerConfig> C>
  explicit TorchRunnerBase(const C& config) : TorchRunnerBase(StoredConfig<RunnerConfig>(config)) {}

  // ---- hooks of a step, on every rank -------------------------------------------------------------------------------

  /// Context of the forward pass in a training step: autocast to `precision`. Called when: train_step begins its
  /// forward pass, once per micro-batch. Backward runs outside of it. Keep the guard on the stack; do not allocate
  /// here.
  virtual PrecisionContext train_context();
  /// train_context() for evaluation and inference.
  virtual PrecisionContext forward_context();

  /// Runs the backward pass of one micro-batch, starting from its weight in the accumulation window. Called when:
  /// train_step has a loss, once or more per micro-batch. Gradients accumulate; do not zero them, do not step the
  /// optimizer, do not scale the loss.
  virtual void backward(const at::Tensor& loss);
  /// backward() for one of `models`: only its parameters receive gradients. Calls backward(loss).
  /// @param retain_graph  keeps the graph for the backward pass of another loss
  void backward(const at::Tensor& loss, const std::string& name, bool retain_graph = false);
  void backward(const at::Tensor& loss, std::initializer_list<const char*> names, bool = false) = delete;

  /// Call it instead of backward(loss), before the pass, in a train_step that computes gradients itself, as a pipeline
  /// does. Called when: train_step has its batch, once. @return the gradient of the micro-batch's loss
  at::Tensor begin_manual_backward();

  /// One update: divides by the window's weights, clips, skips non-finite gradients if configured, steps optimizer and
  /// scheduler. Called when: step() reaches the end of a window. Waits for the device once with `on_nonfinite` stop or
  /// rollback, or `spike.action`, and in optimizers such as LBFGS; else the counters include updates that a device
  /// skips until the next log line or save corrects them. An override divides the gradients by `grad_divisor()`: they
  /// are sums over the window, weighted by samples, as is the divisor. With a loss scale it also divides by
  /// `learner().scaler->factor()` and calls the scaler's `update`. Do not count updates, zero gradients or save here.
  /// @return true if the parameters were updated; only then is the update counted
  virtual bool optimizer_step();
  /// Sum of the weights of the window's micro-batches; 0: no update.
  double grad_divisor() const { return learner_->window.divisor(); }
  /// The model, optimizer and window of the optimizer_step() or backward() in progress.
  Learner& learner() const { return *learner_; }
  /// True while train_step repeats for one update, with the same batch and random numbers, for optimizers that evaluate
  /// the loss at several points (LBFGS). step() then does nothing; meters, metrics and losses are restored afterwards.
  /// An override must skip its side effects.
  bool repeats_step() const;

  /// With `compile.enable`: a number that selects the tape, if a step depends on more than the shapes of its batch,
  /// such as a training phase or a coefficient that rarely changes. Called when: a step of training, evaluation or
  /// inference begins, once, on each rank. Return the same number for the same state(); change nothing.
  virtual std::int64_t step_variant() const { return 0; }

  /// True when the loss has a term against the logits of the `teacher`.
  bool has_distillation_loss() const { return distills_; }
  /// Sets the logits for this term of the next loss.
  void set_teacher_logits(at::Tensor logits) const;

  void materialize_model() override;
  void build_optimizer() override;
  void build_scheduler() override;
  void build_metrics() override;

  // ---- the typed layer ----------------------------------------------------------------------------------------------

  virtual data::LoaderBase& loader(std::string_view split) = 0;
  virtual const data::LoaderBase* find_loader(std::string_view split) const = 0;
  /// Options of a split: `dataloader` in the config overrides those that the sample type declares.
  /// @throws ConfigError for an option that needs workers, without workers
  data::LoaderOptions loader_options(const std::string& split, bool stream, const data::LoaderDefaults& declared);
  /// A second loader of a split with another batch size, for the batch size finder.
  virtual std::shared_ptr<data::LoaderBase> loader_of_size(std::string_view split, std::int64_t size) = 0;
  /// The current batch of the loader.
  virtual data::BatchRef current_batch(data::LoaderBase& loader) = 0;
  // Compiled parts of train_on_batch, evaluate_on_batch and infer_on_batch.
  BatchReport train_on_batch_impl(data::BatchRef batch, std::int64_t samples, const std::string& split, bool last);
  BatchReport evaluate_on_batch_impl(data::BatchRef batch, std::int64_t samples, const std::string& split);
  void infer_on_batch_impl(const std::function<void()>& infer);
  /// True when steps are recorded and no recorded step is in progress.
  bool records_steps() const { return tapes_ != nullptr && !in_recorded_step_; }
  /// Runs a step by its tape, or by `eager`.
  at::Tensor run_recorded(RunnerMode mode, const detail::BatchParts& batch, const std::function<at::Tensor()>& eager);
  /// @return the loss, a scalar or undefined
  virtual at::Tensor run_train_step(data::BatchRef batch) = 0;
  virtual at::Tensor run_evaluate_step(data::BatchRef batch) = 0;
  /// @param prediction  output: a std::optional of the prediction's type
  virtual void run_infer_step(data::BatchRef batch, void* prediction) = 0;
  virtual BatchCounts count_batch(data::BatchRef batch) = 0;  // before the batch is moved
  /// The tensors of a batch, for a file; null if the type does not list them.
  virtual State batch_state(data::BatchRef batch) = 0;
  /// The dtype of floating-point inputs with `precision: fp64`; empty: no conversion.
  std::optional<c10::ScalarType> input_dtype() const { return input_dtype_; }
  /// Begins to infer a split. @throws ConfigError for a negative number of steps, and for a `whole` split without a
  /// length if `steps` is not given
  detail::InferBatches begin_infer(std::string_view split, std::optional<std::int64_t> steps, bool whole);
  /// Concatenates along the first dimension; an empty tensor for no predictions.
  static at::Tensor joined(const std::vector<at::Tensor>& predictions);
  /// @return `loss`. @throws StateError when it has several elements
  static at::Tensor check_loss(const char* hook, at::Tensor loss) {
    if (loss.defined() && loss.dim() != 0 && loss.numel() != 1) [[unlikely]] {
      fail_loss(hook, loss);
    }
    return loss;
  }
  [[noreturn]] static void fail_loss(const char* hook, const at::Tensor& loss);
  /// Rethrows the current exception with its position in the run. Errors of danling keep their type; those of LibTorch
  /// and the standard library become an Error that nests the original; others pass unchanged, and their position is
  /// logged.
  [[noreturn]] void rethrow_from_step(const char* hook, const std::string& shapes);

  std::optional<std::int64_t> steps_per_epoch() const override;
  std::optional<std::int64_t> split_length(std::string_view split) const override;
  bool at_boundary() const override { return loop_.split.empty() && loop_.round.empty(); }
  State pass_state() const override;
  bool is_settled() const override;
  bool is_between_updates() const override;
  std::string unfinished_work() const override;
  void synchronize_counters() override;
  std::shared_ptr<void> gather_full_state(bool writes) override;
  ShardedState sharded_state(State state) const override;
  std::optional<ShardBox> shard_box(const std::string& path, at::IntArrayRef sizes) const override;
  void load_components(const State& checkpoint) override;
  void load_model(const State& state) override;
  void load_named_model(const std::string& name, const State& state) override;
  // Hooks like load_model: see BaseRunner.
  virtual void load_ema(const State& state);
  virtual void load_optimizer(const State& state);
  virtual void load_scheduler(const State& state);
  State model_state_dict() const override;
  State exported_state_dict(const State& weights) const override;
  void export_files(const State& weights, const std::filesystem::path& directory) override;
  std::string model_metadata() const override;
  void fill_summary(RunSummary& summary) const override;

  /// The metrics of the split in progress, or null.
  MetricsBase* active_metrics() const { return active_metrics_; }
  /// Updates active_metrics() if they take predictions and targets. @throws StateError if they take something else
  void update_metrics(const at::Tensor& prediction, const at::Tensor& target) const {
    if (tapes_ != nullptr && observe_metrics(prediction, target)) [[unlikely]] {
      return;
    }
    if (predicted_metrics_ != nullptr) {
      if (prediction.defined() && target.defined()) {
        predicted_metrics_->update(prediction, target);
      }
    } else if (active_metrics_ != nullptr) {
      fail_metrics();
    }
  }
  [[noreturn]] void fail_metrics() const;
  /// In a step that is recorded or checked: updates active_metrics() and adds the update to the tape.
  bool observe_metrics(const at::Tensor& prediction, const at::Tensor& target) const;
  /// Finds the metrics and losses over the batch type. Called when: a split begins, once.
  virtual void bind_typed_components() = 0;
  /// As the metrics of the score's split declare.
  std::optional<bool> higher_is_better(std::string_view score) const override;
  /// `ema` if it is set, else `model`. @throws StateError when neither is set
  const ModelHandle& evaluation_model() const;

 private:
  friend class detail::InferBatches;
  friend class detail::LoopFrame;

  /// Parts of the loops, each in a file of its name in src/runner. In a struct: the program may use these names.
  struct Internals : BaseRunner::Internals {
    using LoopState = detail::LoopState;
    using MicroBatch = detail::MicroBatch;
    using OpenStep = detail::OpenStep;
    using Splits = detail::Splits;
    class Averages;
    class BatchSizes;
    class Adapters;
    class Checks;
    class Evaluator;
    class FaultTolerance;
    class Finder;
    class Gradients;
    class HostLoop;
    class InferScope;
    class Learners;
    class LossTerms;
    class PausedPass;
    class Rounds;
    class Schedules;
    class ShardStates;
    class Snapshot;
    class StepRepeater;
    class StepTapes;
    class TrainPass;
    class Training;
    class LossPolicy;
    class WatchedLoop;
    class Windows;
  };

  explicit TorchRunnerBase(StoredConfig<RunnerConfig> config);

  void enter(RunnerMode mode, std::string_view split);
  void begin_rounds();
  void run_rounds(const Internals::Splits& splits);
  /// Sets training or evaluation mode of all models; an untrained model stays in evaluation mode.
  void set_training(bool training);
  bool any_script() const;
  bool is_training() const { return training_ || pass_ != nullptr; }
  const MetricsBase* score_metrics() const;
  detail::OpenStep& current_step(std::string_view operation);
  bool begin_backward(const at::Tensor& loss);
  void run_backward(const at::Tensor& loss);
  void observe_backward(const at::Tensor& loss);
  void observe_step(const std::string& name);
  void read_options();
  void convert_weights(c10::ScalarType dtype) const;
  bool pins(const std::string& split);

  Internals::ShardStates& shard_states() const;
  mutable std::shared_ptr<Internals::ShardStates> shard_states_;  // the shards of this rank, for checkpoints

  // Progress.
  detail::LoopState loop_;
  detail::Measurements saved_measurements_;  // from the checkpoint, until the pass resumes
  State saved_gradients_;                    // statistics from the checkpoint, until the models train
  std::int64_t skipped_updates_ = 0;
  Result test_result_;
  std::string tested_weights_;
  bool has_trained_ = false;

  // Options, read once for the step path.
  std::optional<c10::ScalarType> autocast_dtype_, input_dtype_;
  bool by_steps_ = false;
  bool is_single_process_ = true;
  bool computes_shards_ = false;                                 // of a batch, with virtual ranks
  std::optional<std::chrono::milliseconds> train_timeout_ = {};  // until the first update
  bool joins_updates_ = false;                                   // of ranks with more batches than this one
  std::int64_t save_interval_ = 0;                               // updates, in step mode; 0: never
  std::int64_t accum_span_ = 1;                                  // micro-batches after which all windows are closed
  CheckpointManager* checkpoint_manager_ = nullptr;
  LoopProgress* watched_ = nullptr;  // set while a watchdog or heartbeat watches a loop

  // The loop in progress.
  detail::RangeQuery records_ranges_;
  bool profiled_ = false;              // a profiler records the batch in progress
  bool training_ = false;              // inside a call that trains
  detail::LoopFrame* pass_ = nullptr;  // of training
  std::shared_ptr<Internals::HostLoop> host_;
  bool evaluating_ = false;     // inside an evaluation of splits
  bool paused_ = false;         // an evaluation interrupts the pass
  bool saves_on_stop_ = false;  // the evaluation in the pause may stop: the run can be saved there
  bool in_step_event_ = false;  // callbacks are handling a step
  MetricsBase* active_metrics_ = nullptr;
  Metrics* predicted_metrics_ = nullptr;  // active_metrics_, if they are Metrics

  bool has_adapters_ = false;    // LoRA adapters, merged after each update
  bool stale_adapters_ = false;  // an evaluation may have used other weights
  // Terms of the criterion that the config sets: weights, schedules, distillation.
  std::shared_ptr<Internals::LossTerms> loss_terms_;
  bool distills_ = false;

  std::shared_ptr<Internals::StepTapes> tapes_;  // null without compile.enable
  bool in_recorded_step_ = false;

  // The models in training and the step in progress.
  std::vector<Learner> learners_;
  Learner* learner_ = nullptr;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> learner_counts_;  // from the checkpoint
  std::vector<std::shared_ptr<void>> gradient_accumulators_;
  detail::OpenStep* open_step_ = nullptr;  // null outside a training step
  std::int64_t step_number_ = 0;
  std::int64_t updated_at_ = -1;  // micro_step of the last update
  BackwardOptions backward_options_;
  detail::LossProbe* loss_probe_ = nullptr;  // set by a finder
  std::vector<at::Tensor> clip_params_;
  at::Tensor unread_steps_;                               // counted in global_step, but skipped by the device
  std::shared_ptr<detail::LossPolicyState> loss_policy_;  // null without a policy that checks updates
  std::shared_ptr<detail::ModelAverages> averages_;       // EMA and SWA of the config, or null

  // Warnings.
  std::set<std::string, std::less<>> warned_;  // messages that were logged, each once
  std::string pin_warning_;                    // logged once the log is open
  std::int64_t skips_logged_ = 0;
};

}  // namespace danling::inline v0
