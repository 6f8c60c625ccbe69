// The part of a runner that knows no model: life cycle, callbacks, checkpoints, results and services.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include <danling/checkpoint/io.hpp>
#include <danling/checkpoint/pretrained.hpp>
#include <danling/checkpoint/sharded.hpp>
#include <danling/core/error.hpp>
#include <danling/runner/callback.hpp>
#include <danling/runner/mode.hpp>
#include <danling/runner/plan.hpp>
#include <danling/runner/requests.hpp>
#include <danling/runner/results.hpp>
#include <danling/runner/state.hpp>
#include <danling/runner/stopped.hpp>
#include <danling/runner/time_limit.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

class Workspace;
class Logger;
class CheckpointManager;
class EarlyStopping;
class Sink;
struct RunSummary;

namespace detail {
struct FaultState;
struct RunnerServices;
class SinkFeed;
}  // namespace detail

/// A runner is built in two phases, because constructors cannot call overrides: the constructor of RunnerIdentity, then
/// `initialize()`, once, with all hooks.
class BaseRunner : public RunnerPlan {
 public:
  enum class Phase { constructed, initializing, ready, failed, closed };

  virtual ~BaseRunner();

  // ---- progress -----------------------------------------------------------------------------------------------------

  const RunnerState& state() const { return state_; }
  RunnerMode mode() const { return mode_; }
  /// The split in progress, or the last one; train() clears it when it returns.
  const std::string& split() const { return split_; }
  const ResultBook& results() const { return results_; }
  /// Why the best checkpoint is not that of the best result, and which one it is; empty when it is. Known from the end
  /// of train() on, and after a resume.
  /// The average that evaluation uses in place of the trained weights: "ema", "swa", or empty.
  virtual std::string evaluated_average() const { return {}; }
  /// The same at the time of the best result.
  const std::string& best_average() const { return best_average_; }
  const std::string& unsaved_best() const { return unsaved_best_; }

  /// Between 0 and 1. @throws StateError when neither steps nor epochs are known.
  double progress() const;
  /// Nothing without a `time_limit`. The run stops a little earlier, to save.
  std::optional<double> seconds_to_time_limit() const { return time_limit_.seconds_left(); }

  // ---- life cycle ---------------------------------------------------------------------------------------------------

  /// Runs the second phase once: process group, checkpoint manager, fault tolerance, data, model, optimizer, scheduler,
  /// restore. Writes nothing: train(), or the first save, takes the run's directory, so a program that only evaluates
  /// leaves a finished run in place. The drivers call it; a second call does nothing.
  /// @throws StateError on re-entry from a hook, after a failure (with its message) and after close().
  void initialize();
  Phase phase() const { return phase_; }

  /// Drains checkpoints and closes logs. Idempotent. Not a hook: `dl::run` calls it while all members live; call it
  /// yourself on a runner that you own.
  /// @param timeout seconds to wait for checkpoints; without one, `checkpoint.wait_timeout` of the config.
  /// @return false when the checkpoints did not drain in time; nothing is then closed.
  bool close(std::optional<double> timeout = std::nullopt);

  /// Stops the loops at the end of the accumulation window: the run is saved and `Stopped` is thrown. From any thread.
  /// The request holds until load_checkpoint().
  void request_stop(int signal = 15) { requests_.stop.store(signal, std::memory_order_relaxed); }

  /// Ends train() after this epoch, or in step mode after this accumulation window, with the last evaluation and save
  /// of a complete run. For callbacks. Logs `reason`.
  /// A later start has nothing to do, unless the boundary is raised; request_stop() is for runs that resume.
  void end_training(const std::string& reason) { (distributed() ? requests_.end : requests_.ended) = reason; }
  /// Evaluates whole `evaluate_splits()` at the end of the accumulation window, in the middle of a round. For
  /// callbacks, which receive the numbers by on_evaluate_end. metrics.jsonl records them; they never select the best
  /// checkpoint.
  void request_evaluation() { requests_.evaluation = true; }
  /// Saves `latest` at the end of the accumulation window. For callbacks; one rank alone may call it.
  void request_save() { requests_.save = true; }

  // ---- callbacks and state of your own ------------------------------------------------------------------------------

  /// While the result lives, the parameters of the models are whole on every rank (of a slice: its rows), for a
  /// callback that reads or writes them; with `fsdp`, a rank has some rows of each else. Null where they always are.
  /// Called by all ranks, between steps: in on_result, not in on_gradients. @param writes  whether changes are kept
  virtual std::shared_ptr<void> whole_parameters(bool /*writes*/ = false) { return nullptr; }

  /// Adds a callback, which the runner then owns: `add(MyCallback(...))` in the constructor of your class, or before
  /// train(). @return the callback. @throws ConfigError when its name is taken
  template <std::derived_from<Callback> T>
  T& add(T callback) {
    return add(std::make_shared<T>(std::move(callback)));
  }
  template <std::derived_from<Callback> T>
  T& add(const std::shared_ptr<T>& callback) {
    const bool is_derived = callback != nullptr && typeid(*callback.get()) != typeid(T);
    callbacks_.add(callback, is_derived ? detail::Listens{true, true} : detail::listens<T>());
    return *callback;
  }
  /// Saves and restores the state of an object of yours with the run, under `tracked.<name>`. The object must outlive
  /// the runner. Call it before initialize(). @throws ConfigError when the name is taken
  template <Checkpointable T>
  void track(const std::string& name, T& object) {
    track(name, {[&object] { return State(object.state_dict()); },
                 [&object](const State& state) { object.load_state_dict(state); }});
  }

  // ---- sinks --------------------------------------------------------------------------------------------------------

  /// Adds a receiver of the run's numbers (telemetry/sink.hpp). It gets them from the beginning of training on, or from
  /// now, on a thread of its own on the main process. @throws ConfigError for null
  void add_sink(std::shared_ptr<Sink> sink);
  /// Records a number of the program: a line of metrics.jsonl with it alone, which all sinks get; at the present step
  /// unless `step` says another. Meters and metrics are recorded without it. No effect on other ranks and before
  /// training begins; so the functions below. All are for the thread that trains. @throws MetricError for a name that
  /// lines have
  void write_score(const std::string& name, double score, const std::string& split,
                   std::optional<std::int64_t> step = std::nullopt);
  /// @param text  Markdown
  void write_text(const std::string& name, const std::string& text);
  /// The distribution of a tensor, which is copied on its device; nothing waits. @throws ConfigError for a complex or
  /// sparse one
  void write_histogram(const std::string& name, const at::Tensor& values);
  /// A picture [3 or 1, height, width] or [height, width]: integers from 0 to 255, or floats from 0 to 1; others are
  /// clamped. It is copied; nothing waits.
  /// @throws ConfigError for another shape
  void write_image(const std::string& name, const at::Tensor& image);

  // ---- checkpoints --------------------------------------------------------------------------------------------------

  /// Saves through the checkpoint manager. All ranks call it, because each adds its part (`ranks.<number>` in the
  /// checkpoint: generators, and loaders of `in_order: false`). By default training continues while the file is written
  /// (`checkpoint.async_mode`). Inside an accumulation window the save waits for its end: a checkpoint never holds
  /// partial gradients.
  /// @param name alias to write, "latest" usually.
  /// @param last_step the final save of a run, which also exports the model alone.
  /// @param force save off the manager's interval too.
  /// @throws CheckpointError when the last or a forced save fails, and with `checkpoint.on_error: stop`; other failures
  /// are logged and counted in checkpoint_manager().checkpoint_health().
  void save_checkpoint(const std::string& name = "latest", bool save_best = true, bool last_step = false,
                       bool force = false);
  /// Saves the initial state, for other runs to start from; `checkpoint.last_save_model_only` applies. Warns when
  /// training has advanced.
  void save_seed_checkpoint(const std::string& name = "seed");
  /// Waits until all saves are on disk, at most `checkpoint.wait_timeout` seconds. Called by train() at its end and
  /// before a stop. @throws CheckpointError when the newest save under any name failed, or after the timeout
  void settle_checkpoints();
  /// Whether an earlier start finished the run and kept the model alone (`checkpoint.last_save_model_only`), so that it
  /// cannot train further. Known after initialize(), with `auto_resume`.
  bool is_finished() const;

  /// Restores a whole run: counters, generators, model, optimizer, scheduler, data position. With a checkpoint of this
  /// run's directory, training continues in that directory.
  /// @throws CheckpointError, ConfigError when parts are missing or a semantic option differs, StateError inside of
  /// train(): let it end by an exception or a stop first.
  void load_checkpoint(const std::filesystem::path& path);
  template <std::same_as<State> S>  // text converts to State, but here it is a path
  void load_checkpoint(const S& checkpoint) {
    restore(checkpoint);
  }

  /// Loads weights alone, in any layout that match_weights() finds; those of the EMA when the file has them. Mismatches
  /// are one warning of each kind, or with `options.strict` an error.
  /// @return loaded and missing names. @throws CheckpointError; the model is then unchanged
  WeightMatch load_pretrained(const std::filesystem::path& path, const PretrainedOptions& options = {});
  template <std::same_as<State> S>
  WeightMatch load_pretrained(const S& checkpoint, const PretrainedOptions& options = {}) {
    return restore_weights(checkpoint, options);
  }

  /// The payload of a checkpoint: the config ("runner"), counters and generators ("state"), data position
  /// ("dataloaders"), results and the place in the epoch ("loop"); derived runners add their components.
  /// Called when: a checkpoint is built, on the ranks that save, and before one is loaded with nested names in
  /// `checkpoint.exclude_from_loading`. Call the base and add to its result. Do not change model or optimizer here.
  virtual State state_dict();

  /// Restores the entries of BaseRunner::state_dict().
  /// Called when: load_checkpoint has read and filtered a payload, before the components are loaded.
  /// @throws ConfigError that lists the semantic options that differ.
  virtual void load_state_dict(const State& checkpoint);

  /// dl::save() on the main process, or with `main_process_only` false on every rank. @return `file`
  template <class T>
  std::filesystem::path save(T&& object, const std::filesystem::path& file, bool main_process_only = true) const {
    return main_process_only && !is_main_process() ? file : danling::save(std::forward<T>(object), file);
  }

  /// Writes summary.json, with the status of the run. `dl::run` calls it; `error` is empty unless the run crashed.
  void write_summary(const std::string& status, const std::string& error = "", int signal = 0, int exit_code = 0);

  /// Reads a payload. Called when: load_checkpoint or load_pretrained is given a path, and once in initialize() for
  /// `resume` and `pretrained`, before the run's directory is taken. Override it to read another place or format. Do
  /// not apply the payload here.
  virtual State read_checkpoint(const std::filesystem::path& path);

  // ---- services: the logger from construction on, the others after initialize() -------------------------------------

  Logger& logger();
  Workspace& workspace();
  CheckpointManager& checkpoint_manager();
  /// Binds your manager and closes the one before. Call it in the constructor of your class or in
  /// init_checkpoint_manager. @throws StateError later.
  void set_checkpoint_manager(std::unique_ptr<CheckpointManager> manager);

 protected:
  /// Keeps the user's whole config. The type is deduced at the call: `TorchRunner(config)`.
  /// @throws ConfigError when `config` is a base reference to a derived config, which would lose its fields.
  template <std::derived_from<RunnerConfig> C>
  explicit BaseRunner(const C& config) : BaseRunner(StoredConfig<RunnerConfig>(config)) {}

  // ---- hooks of initialize(), in this order. Each is called once, on every rank; call the base unless it says not to.

  /// Joins the processes: builds the Parallelism that `stack` of the config names (see stacks()). Before: config,
  /// identity. Do not build the model or data here. An override that joins processes itself calls set_parallelism() in
  /// place of the base. All ranks must run the same loops over the same splits with the same `log_interval`; their
  /// numbers of batches may differ where gradients are not summed.
  /// The launcher's variables say who joins; `init_method` of the config, else the variable INIT_METHOD, where.
  /// @throws DistributedError when others do not join, ConfigError for a `backend` that cannot join them
  virtual void init_distributed();
  /// Builds the Parallelism of processes that a launcher started, in which it joins them; by default that of `stack`.
  /// Called when: init_distributed runs, once, on every rank; not with `ft`.
  virtual std::unique_ptr<Parallelism> build_parallelism(const ProcessIdentity& identity);
  /// Replaces the Parallelism of the run, and seeds the generators anew where the seed of this rank changes.
  /// @throws StateError anywhere but in init_distributed.
  void set_parallelism(std::unique_ptr<Parallelism> parallelism);
  /// Binds the checkpoint manager, through set_checkpoint_manager(), unless there is one. Before: processes joined,
  /// paths known; the run's directory is not taken yet, so write nothing.
  virtual void init_checkpoint_manager();
  /// Checks that `ft` applies: init_distributed of this class joins its processes. Before: the checkpoint manager is
  /// bound.
  virtual void init_fault_tolerance();
  /// Starts the heartbeat of `heartbeat.enabled`. Called when: training has taken the run's directory, before its first
  /// step, on every rank; and, with `ft`, each time that the ranks have changed. Not part of initialize().
  virtual void init_heartbeat();
  /// Adds the sink of `tensorboard: true`, or of `wandb.enabled`. Called when: the key is set, once, on every rank.
  /// Files are opened when training begins. Override one to add another sink in its place.
  virtual void init_tensorboard();
  virtual void init_wandb();
  /// Builds loaders for the datasets that have none. Before: the checkpoint to restore is read. After: the length of an
  /// epoch is known.
  virtual void build_dataloaders() = 0;
  /// Moves the model to the device and prepares it. Do not build the optimizer here.
  virtual void materialize_model() = 0;
  /// Builds the optimizer from the config when the user bound none. Before: the model is on its device.
  virtual void build_optimizer() = 0;
  /// Builds the scheduler from the config when the user bound none. Before: the optimizer is bound.
  virtual void build_scheduler() = 0;
  /// Builds the metrics that the config names, in place of any that the user bound. Before: the scheduler is bound.
  virtual void build_metrics() = 0;
  /// Loads `resume`, `auto_resume` or `pretrained`, in this precedence. Before: all components are built.
  virtual void auto_restore();

  /// Selects deterministic algorithms for the whole process: those of LibTorch, cuDNN, oneDNN and cuBLAS, and filled
  /// uninitialised memory. Construction does the same when `deterministic` is set, and the destructor of the last
  /// runner that changed the settings restores those before.
  static void set_deterministic();

  // ---- interface to derived runners ---------------------------------------------------------------------------------

  /// Whether no epoch is in progress.
  virtual bool at_boundary() const = 0;
  /// Whether a checkpoint taken now resumes exactly: no step and no accumulation window is open.
  virtual bool is_settled() const { return true; }
  /// Whether no step and no accumulation window is open; an event of a step may be in progress.
  virtual bool is_between_updates() const { return true; }
  /// Makes the counters exact, which may wait for a device. Called before a checkpoint is built.
  virtual void settle_counters() {}
  virtual State dataloader_state() const = 0;
  /// Meters, metrics and losses of this rank in the middle of a pass; null outside. All ranks gather them for a save.
  virtual State pass_state() const { return {}; }
  /// While the result lives, components have whole parameters and states; null where they always have. Called by all
  /// ranks, between steps. @param writes  whether what is written to parameters is kept
  virtual std::shared_ptr<void> expose_state(bool /*writes*/) { return nullptr; }
  /// For checkpoints of shards: this rank's parts of a state, and where they lie; and the part that it needs.
  virtual ShardedState sharded_state(State state) const;
  virtual std::optional<ShardBox> shard_box(const std::string& path, at::IntArrayRef sizes) const;
  /// expose_state() for a checkpoint; null where every rank saves and loads its own parts.
  std::shared_ptr<void> expose_checkpoint(bool writes) { return saves_shards_ ? nullptr : expose_state(writes); }
  /// Whether checkpoints are directories of shards: `checkpoint.backend: dcp`.
  bool saves_shards() const { return saves_shards_; }
  /// Restores the components, each by its hook below.
  virtual void load_components(const State& checkpoint) = 0;
  /// Hooks that restore one part of a checkpoint, on every rank. Called when: load_checkpoint has restored counters and
  /// generators, once each, in the order of declaration here and in TorchRunnerBase, for parts that are in the
  /// checkpoint, bound in the runner and not excluded from loading. load_pretrained calls load_model too. Override one
  /// to convert an older layout, and call the base with the result. Do not step, draw random numbers or load another
  /// part here.
  virtual void load_model(const State& state) = 0;
  /// One of several models.
  virtual void load_named_model(const std::string&, const State&) {}
  /// Restores the positions of the loaders, by split. Called last.
  virtual void load_dataloaders(const State& state) = 0;
  /// The payload of the `model` export: {"model": ...} and the EMA when there is one.
  virtual State model_state_dict() const = 0;
  /// `weights`, in the layout of model_state_dict(), as model.pth gets them: with adapters merged into their layers.
  virtual State exported_state_dict(const State& weights) const { return weights; }
  /// metadata/model.yaml of the run.
  virtual std::string model_metadata() const { return {}; }
  /// Writes further files of the `model` export beside model.pth, from `weights` in the layout of model_state_dict().
  /// Called when: model.pth is written, on the rank that writes it.
  virtual void export_files(const State&, const std::filesystem::path&) {}
  /// Whether a higher score of this name is better. Nothing when unknown: then lower is better for "loss", higher for
  /// all others.
  virtual std::optional<bool> higher_is_better(std::string_view) const { return std::nullopt; }

  /// Adds facts of the run to summary.json: here the best and the latest result.
  virtual void fill_summary(RunSummary& summary) const;
  /// Whether a signal, a request or the time limit stops the run. One branch without a time limit, else a clock read.
  bool stop_requested();

  /// Whether `checkpoint.exclude_from_loading` names this top-level key of a checkpoint.
  bool excluded_from_loading(std::string_view key) const;
  detail::RunnerServices& services();

  EarlyStopping& early_stopping() const { return *early_stopping_; }

  // Parts of the runner, each in a file of src/runner with its name.
  class Agreement;
  class Records;
  class Restorer;
  class Saver;
  class Setup;

  RunnerState state_;
  ResultBook results_;
  CallbackList callbacks_;
  detail::Requests requests_;
  detail::TimeLimit time_limit_;
  RunnerMode mode_ = RunnerMode::train;
  std::string split_;
  /// During an evaluation inside training: checkpoints hold the generators as of its beginning.
  bool rng_frozen_ = false;
  std::shared_ptr<detail::FaultState> fault_;  ///< null without `ft`
  std::shared_ptr<detail::SinkFeed> sinks_;
  bool makes_histograms_ = false;

 private:
  explicit BaseRunner(StoredConfig<RunnerConfig> config);

  struct Tracked {
    std::function<State()> state_dict;
    std::function<void(const State&)> load_state_dict;
  };
  void track(const std::string& name, const Tracked& tracked);
  void restore(const State& checkpoint);
  WeightMatch restore_weights(const State& checkpoint, const PretrainedOptions& options);

  Phase phase_ = Phase::constructed;
  bool saves_shards_ = false;
  std::string failure_;
  std::string unsaved_best_, best_average_;
  std::unique_ptr<Logger> logger_;
  std::unique_ptr<CheckpointManager> own_manager_;  // set before there are services
  std::unique_ptr<detail::RunnerServices> services_;
  bool recording_begun_ = false;
  std::shared_ptr<void> kernel_settings_;  // restores those of the process
  std::shared_ptr<EarlyStopping> early_stopping_;
  std::vector<std::pair<std::string, Tracked>> tracked_;
};

}  // namespace danling::inline v0
