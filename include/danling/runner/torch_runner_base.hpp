// The loops of TorchRunner: compiled once, whatever the batch type.
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
#include <danling/data/loader_visit.hpp>
#include <danling/metrics/average_meters.hpp>
#include <danling/metrics/metrics.hpp>
#include <danling/optim/optimizer.hpp>
#include <danling/optim/scheduler.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/runner/criterion.hpp>
#include <danling/runner/infer_stream.hpp>
#include <danling/runner/learner.hpp>
#include <danling/runner/metrics_handle.hpp>
#include <danling/runner/model.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/precision.hpp>
#include <danling/runner/window.hpp>

namespace danling::inline v0 {

namespace detail {
class LoopFrame;
class WindowLengths;
}  // namespace detail

/// Trains, evaluates and infers. Users derive from `TorchRunner` (or `BasicTorchRunner<MyBatch>`), set the components
/// in their constructor and override the hooks that their task needs. Drivers (`train`, `evaluate`, `infer`, `step`)
/// are not virtual; the hooks they call are.
class TorchRunnerBase : public BaseRunner {
 public:
  ~TorchRunnerBase() override;

  // ---- components: set them in the constructor of your class --------------------------------------------------------

  ModelHandle model;
  /// Further models by name, or all of them: a generator and a discriminator, an actor and a critic, a teacher. Each
  /// that has trainable parameters gets an optimizer from `optim.<name>` and a schedule from `sched.<name>`, over the
  /// common sections; `optimizers["teacher"] = nullptr` leaves one alone, in evaluation mode. All are moved to the
  /// device, saved, resumed and exported. Your train_step calls backward(loss, name) and step(name).
  std::map<std::string, ModelHandle> models;
  /// Evaluated and inferred with in place of `model` when it is set; keeping it up to date is yours.
  ModelHandle ema;
  /// One loss, or Losses: several with weights, reported each as a pair (weight, raw value) under "losses".
  CriterionHandle criterion;
  /// Built from `optim` of the config when it is empty.
  std::shared_ptr<optim::Optimizer> optimizer;
  /// Built from `sched` of the config when it is empty.
  std::shared_ptr<optim::Scheduler> scheduler;
  /// Of `models`, by name.
  std::map<std::string, std::shared_ptr<optim::Optimizer>> optimizers;
  std::map<std::string, std::shared_ptr<optim::Scheduler>> schedulers;
  /// What is measured in training and in evaluation, unless one of the two below is set. Where the config has a
  /// `metrics.type`, the metrics that it names stand in for all three. The default steps feed Metrics (of predictions
  /// and targets) and BatchMetrics over the runner's batch type; steps of your own may update others.
  MetricsHandle metrics;
  MetricsHandle train_metrics;
  MetricsHandle evaluate_metrics;
  /// Averages of the split in progress: "loss", "lr", and any that your steps update.
  AverageMeters meters;

  // ---- drivers ------------------------------------------------------------------------------------------------------

  /// Trains to the boundary of the config (`epochs` or `steps`), evaluating and saving on the way.
  /// @param train_splits, evaluate_splits  names; empty for those of the config or of the data.
  /// @throws ConfigError for an unknown split, Stopped after a stop was asked for and saved.
  const ResultBook& train(const std::vector<std::string>& train_splits = {},
                          const std::vector<std::string>& evaluate_splits = {});

  /// Evaluates whole splits and prints what came out; changes no training state. A split that also trains is evaluated
  /// in the order and with the records of its epoch 0 (`drop_last` leaves out there what it does in training), and goes
  /// on where training left it, whether this ends or throws.
  /// @throws StateError for a split that trains in several processes with `in_order: false`.
  Result evaluate(const std::vector<std::string>& splits = {});
  Result evaluate_epoch(std::string_view split);
  /// Evaluates the first `steps` batches; by default a twentieth of the run's updates, at least one.
  /// @throws DataError when the split has fewer batches; of several ranks, when all of them have.
  Result evaluate_steps(std::string_view split, std::optional<std::int64_t> steps = std::nullopt);
  /// Evaluates `test_splits()`, once, apart from the results that the best is chosen from, with the weights that
  /// `test_with` names; afterwards the model has its own again.
  Result test();
  /// What test() gave last.
  const Result& test_result() const { return test_result_; }
  /// Which weights that is of: `epoch 30 (last)`.
  const std::string& tested_weights() const { return tested_weights_; }
  /// Which weights `model.pth` was saved with: `epoch 28 (best)`. Empty before it was.
  std::string exported_weights();
  /// Whether train() was called.
  bool has_trained() const { return has_trained_; }

  /// Closes one micro-batch: counts it and, at the end of an accumulation window, calls `optimizer_step()`, counts the
  /// update and zeroes the gradients. Called once by `train_step`, after `backward`; the loop checks that.
  /// @throws StateError outside of a training step.
  void step();
  /// The same for one of `models`. May be called more than once for a micro-batch (a critic's inner loop), or not at
  /// all. An update of whichever model counts the micro-batch as one step of the run.
  /// @throws ConfigError for a name that trains nothing
  void step(const std::string& name);

  // ---- in a loop of the program's own: BasicTorchRunner::train_on_batch and its neighbours
  // -----------------------------

  /// What came of one micro-batch that the program brought.
  struct BatchReport {
    at::Tensor loss;       ///< on its device; undefined where the step gives none
    bool updated = false;  ///< the optimizer changed the parameters
    bool done = false;     ///< `steps` of the config are done, or a callback has ended training
  };

  /// Ends the evaluation that evaluate_on_batch began. In the middle of training and between two windows its averages
  /// become a row of the results at this step, by which the best checkpoint is chosen. @return the averages. @throws
  /// StateError where none was begun
  Result finish_evaluation();
  /// Ends the training that train_on_batch began: an open accumulation window is closed, the averages become a row of
  /// the results, and the last checkpoint is on disk. Where it throws, as on a full disk, it may be called again.
  /// @throws StateError where none was begun
  const ResultBook& finish_training();

  /// Parameters that the optimizer gets, with their names. Override it to freeze or to add.
  /// Called when: build_optimizer runs, once.
  virtual NamedTensors iter_optimizer_named_parameters() const;

  State state_dict() override;
  void load_state_dict(const State& checkpoint) override;

 protected:
  template <std::derived_from<RunnerConfig> C>
  explicit TorchRunnerBase(const C& config) : BaseRunner(config) {
    read_options();
  }

  // ---- hooks of a step, on every rank -------------------------------------------------------------------------------

  /// What the forward pass of a training step runs in: autocast to `precision`. Called when: train_step begins its
  /// forward pass, once per micro-batch. Backward runs outside it. Keep the guard on the stack; do not allocate here.
  virtual PrecisionContext train_context();
  /// The same for evaluation and inference.
  virtual PrecisionContext forward_context();

  /// Runs the backward pass of one micro-batch, seeded with its weight in the accumulation window.
  /// Called when: train_step has a loss, once or more per micro-batch. Gradients accumulate; do not zero them, do not
  /// step the optimizer, do not scale the loss.
  virtual void backward(const at::Tensor& loss);
  /// The same for one of `models`: only its parameters get gradients. `retain_graph`: another loss will go back through
  /// the same graph. Calls backward(loss).
  void backward(const at::Tensor& loss, const std::string& name, bool retain_graph = false);

  /// One update: divides by the window's weights, clips, skips non-finite gradients when asked to, steps optimizer and
  /// scheduler. Called when: step() reaches the end of a window.
  /// @return whether the parameters were updated: only then is the update counted. Do not count it, zero gradients or
  /// save here. With `max_grad_norm` nothing waits for the device; `skip_nonfinite_grad` waits once.
  /// An override divides the gradients by `grad_divisor()`: they are sums over the window, weighted by samples (in
  /// units that the divisor shares).
  virtual bool optimizer_step();
  /// The sum of the weights of the window's micro-batches; 0 when none of them counts (then there is no update).
  double grad_divisor() const { return learner_->window.divisor(); }
  /// Whose optimizer_step() or backward() is called.
  Learner& learner() const { return *learner_; }

  void materialize_model() override;
  void build_optimizer() override;
  void build_scheduler() override;
  void build_metrics() override;

  // ---- the typed layer ----------------------------------------------------------------------------------------------

  virtual data::LoaderBase& loader(std::string_view split) = 0;
  virtual const data::LoaderBase* find_loader(std::string_view split) const = 0;
  /// What `dataloader` of the config says for a split, over what its sample type declares. @throws ConfigError that
  /// names the key of an option that needs workers where there are none.
  data::LoaderOptions loader_options(const std::string& split, bool stream, const data::LoaderDefaults& declared);
  /// The batch that the loader has delivered last.
  virtual data::BatchRef batch_of(data::LoaderBase& loader) = 0;
  // The compiled part of train_on_batch and its neighbours.
  BatchReport train_host_batch(data::BatchRef batch, std::int64_t samples, const std::string& split, bool last);
  BatchReport evaluate_host_batch(data::BatchRef batch, std::int64_t samples, const std::string& split);
  void infer_host_batch(const std::function<void()>& infer);
  /// @return the loss, a scalar or undefined.
  virtual at::Tensor run_train_step(data::BatchRef batch) = 0;
  virtual at::Tensor run_evaluate_step(data::BatchRef batch) = 0;
  /// The prediction goes into `prediction`, a std::optional of its type.
  virtual void run_infer_step(data::BatchRef batch, void* prediction) = 0;
  /// Called before the batch is moved.
  virtual BatchCounts count_batch(data::BatchRef batch) = 0;
  /// Begins to infer a split. @throws ConfigError for a negative number of steps and, of a `whole` split, when it has
  /// no length and `steps` is not given.
  detail::InferBatches begin_infer(std::string_view split, std::optional<std::int64_t> steps, bool whole);
  /// Along the first dimension; no elements where there are none.
  static at::Tensor joined(const std::vector<at::Tensor>& predictions);
  /// `loss`, which a step gave. @throws StateError when it has several elements.
  static at::Tensor check_loss(const char* hook, at::Tensor loss) {
    if (loss.defined() && loss.dim() != 0 && loss.numel() != 1) [[unlikely]] {
      fail_loss(hook, loss);
    }
    return loss;
  }
  [[noreturn]] static void fail_loss(const char* hook, const at::Tensor& loss);
  /// Throws the exception that is being handled with its place in the run: hook, split, epoch, step, `shapes`. Errors
  /// of danling keep their type; LibTorch's and the standard library's become an Error with the original nested in it;
  /// others pass as they are, and the log has the place.
  [[noreturn]] void rethrow_from_step(const char* hook, const std::string& shapes);

  std::optional<std::int64_t> steps_per_epoch() const override;
  std::optional<std::int64_t> split_length(std::string_view split) const override;
  bool at_boundary() const override { return loop_.split.empty() && loop_.round.empty(); }
  bool is_settled() const override;
  void load_components(const State& checkpoint) override;
  void load_model(const State& state) override;
  void load_named_model(const std::string& name, const State& state) override {
    models.at(name).load_state_dict(state);
  }
  // As load_model: see BaseRunner.
  virtual void load_ema(const State& state);
  virtual void load_optimizer(const State& state);
  virtual void load_scheduler(const State& state);
  State model_state_dict() const override;
  void fill_summary(RunSummary& summary) const override;

  /// The metrics of the split in progress; null when there are none.
  MetricsBase* active_metrics() const { return active_metrics_; }
  /// Updates them when they are of predictions and targets. @throws StateError when they are of another kind.
  void update_metrics(const at::Tensor& prediction, const at::Tensor& target) const {
    if (predicted_metrics_ != nullptr) {
      if (prediction.defined() && target.defined()) {
        predicted_metrics_->update(prediction, target);
      }
    } else if (active_metrics_ != nullptr) {
      fail_metrics();
    }
  }
  [[noreturn]] void fail_metrics() const;
  /// Called when: a split begins, once. Finds metrics and losses over the batch type among the components.
  virtual void find_typed() = 0;
  /// As the metrics of the score's split say it.
  std::optional<bool> higher_is_better(std::string_view score) const override;
  /// `ema` when it is set, else `model`. @throws StateError when neither is.
  const ModelHandle& evaluation_model() const;

 private:
  friend class detail::InferBatches;
  friend class detail::LoopFrame;

  /// Where in an epoch a run is: what a checkpoint needs to go on in the middle of one.
  struct LoopState {
    Result last;                         ///< step mode: what the round before gave
    std::string split;                   ///< training split in progress; empty at a boundary
    std::int64_t iteration = 0;          ///< micro-batches of it that are done
    std::int64_t first_step = 0;         ///< global_step when it began
    std::int64_t target_step = 0;        ///< step mode: global_step at which it ends
    Result round;                        ///< results of the splits of this epoch that are done
    std::vector<std::string> evaluated;  ///< of them those that train, and were evaluated too
    bool continuing = false;             ///< a checkpoint from inside of an epoch is loaded and not gone on with yet
  };
  /// What a pass has measured so far.
  struct Measurements {
    State meters, metrics, losses;
  };
  Measurements measurements() const;
  void restore_measurements(const Measurements& saved);

  /// A training step in progress.
  struct OpenStep {
    WindowPlace place = {};  ///< of `model`, or of all models together
    std::optional<std::int64_t> normalizer = {};
    bool last = false;          ///< of its pass
    std::int64_t number = 0;    ///< of training steps in this process
    std::int64_t position = 0;  ///< micro-batches before it, of which windows are made
    at::Tensor loss = {};
    StepPacket agreed = {};  ///< with the other ranks, where a window closes
    std::int64_t steps = 0;  ///< calls of step()
    bool updated = false;
  };
  // Parts of what it does, each in a file of src/runner of its name.
  class Checks;
  class Learners;
  class InferScope;
  class PausedPass;
  class Rounds;
  class StepScope;
  /// The batch of one micro-batch, and whether it is the last of its pass.
  struct MicroBatch {
    data::BatchRef batch;
    std::int64_t samples;
    bool last;
  };
  void enter(RunnerMode mode, std::string_view split);
  /// Training or evaluation mode of all models; one that is not trained stays in evaluation mode.
  void set_training(bool training);
  bool any_script() const;
  /// Epoch 0 of `split` from its beginning; the loader goes back after it where the split trains.
  data::LoaderVisit visit(std::string_view split);
  struct Splits {
    std::vector<std::string> train, evaluate;
  };
  bool is_training() const { return training_ || pass_ != nullptr; }
  void check_not_training(std::string_view operation) const;
  void prepare_training();
  const MetricsBase* score_metrics() const;
  void load_weights(const State& state);
  void tell_others();
  void forget_window();
  [[noreturn]] void rethrow_from_training();
  bool evaluates_after_round() const;

  void begin_host_training(const std::string& split);
  void evaluate_host_round();
  void end_host_training();
  bool at_last_step() const;
  /// One batch of evaluation: the loss.
  at::Tensor evaluate_one(detail::LoopFrame& frame, data::BatchRef batch, std::int64_t samples);

  void train_split(const std::string& split, bool resumed);
  bool next_batch(data::LoaderBase& loader, const std::string& split, std::int64_t& pass_began);
  void begin_train_split(detail::LoopFrame& frame, bool resumed);
  void obey(const StepPacket& agreed);
  void evaluate_between_steps();
  OpenStep train_micro_batch(detail::LoopFrame& frame, const MicroBatch& micro_batch);
  OpenStep open_step(const MicroBatch& micro_batch, std::optional<std::int64_t> normalizer);
  OpenStep& current_step(std::string_view operation);
  Result evaluate_batches(std::string_view split, std::optional<std::int64_t> steps);
  Result evaluate_in_training(std::string_view split, bool whole);
  void step_epoch_schedulers(const Result& result);
  double monitored(const Result& result, const std::string& name) const;
  std::optional<std::int64_t> schedule_length(const std::string& name, const std::string& interval) const;
  std::int64_t window_length(const std::string& name) const;  // in micro-batches
  detail::WindowLengths window_lengths() const;
  void read_options();
  bool pins(const std::string& split);
  State loop_state() const;
  void load_loop_state(const State& state);

  LoopState loop_;
  Measurements saved_;  // of the checkpoint, until then
  Result test_result_;
  std::string tested_weights_;
  bool has_trained_ = false;
  bool saves_on_stop_ = false;
  std::string pin_warning_;  // to be told once
  std::int64_t skipped_updates_ = 0;

  // Read from the config once, for the step path.
  std::optional<c10::ScalarType> autocast_dtype_;
  bool by_steps_ = false;
  bool alone_ = true;               // one process
  std::int64_t save_interval_ = 0;  // updates, by steps; 0: never
  std::int64_t accum_span_ = 1;     // micro-batches after which all windows are closed
  CheckpointManager* checkpoint_manager_ = nullptr;

  detail::LoopFrame* pass_ = nullptr;  // of training, in progress
  bool paused_ = false;                // while something is evaluated in the middle of it
  struct HostLoop;
  std::shared_ptr<HostLoop> host_;
  std::set<std::string, std::less<>> told_;  // warnings that are given once
  std::int64_t skips_told_ = 0;

  std::vector<std::shared_ptr<void>> gradient_accumulators_;
  std::vector<Learner> learners_;
  Learner* learner_ = nullptr;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> learner_counts_;  // of a checkpoint, until then
  std::int64_t step_number_ = 0;
  BackwardOptions backward_options_;
  std::vector<at::Tensor> clip_params_;
  OpenStep* open_step_ = nullptr;  // null outside of a training step
  bool training_ = false;          // inside of a call that trains
  bool in_step_event_ = false;     // while callbacks hear of a step
  MetricsBase* active_metrics_ = nullptr;
  Metrics* predicted_metrics_ = nullptr;  // the same when they are of this kind
};

}  // namespace danling::inline v0
