// BaseRunner, independent of the model: life cycle, callbacks, checkpoints, results and services.
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
#include <danling/runner/detail/requests.hpp>
#include <danling/runner/detail/time_limit.hpp>
#include <danling/runner/mode.hpp>
#include <danling/runner/plan.hpp>
#include <danling/runner/results.hpp>
#include <danling/runner/state.hpp>
#include <danling/runner/stopped.hpp>
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
/// `initialize()`, which runs once and calls all hooks.
class BaseRunner : public RunnerPlan {
 public:
  enum class Phase { constructed, initializing, ready, failed, closed };

  virtual ~BaseRunner();

  // ---- progress -----------------------------------------------------------------------------------------------------

  const RunnerState& state() const { return state_; }
  RunnerMode mode() const { return mode_; }
  /// The split in progress, or else the last one. train() clears it on return.
  const std::string& split() const { return split_; }
  const ResultHistory& results() const { return results_; }
  /// The average that evaluation uses in place of the trained weights: "ema", "swa", or empty.
  virtual std::string evaluated_average() const { return {}; }
  /// evaluated_average() at the time of the best result.
  const std::string& best_average() const { return best_average_; }
  /// The reason why `best` does not hold the best result, and which result it holds; empty if it does. Known from the
  /// end of train() on, and after a resume.
  const std::string& unsaved_best() const { return unsaved_best_; }

  /// Between 0 and 1. @throws StateError when the config has neither steps nor epochs.
  double progress() const;
  /// Empty without a `time_limit`. The run stops before the limit, so that it has time to save.
  std::optional<double> seconds_to_time_limit() const { return time_limit_.seconds_left(); }

  // ---- life cycle ---------------------------------------------------------------------------------------------------

  /// Runs the second phase once: process group, checkpoint manager, fault tolerance, data, model, optimizer, scheduler,
  /// metrics, restore. The drivers call it; a second call does nothing. Writes nothing: train() or the first save sets
  /// up the run's directory, so evaluation alone leaves a finished run unchanged.
  /// @throws StateError when a hook calls it, after a failure (with the first message) and after close()
  void initialize();
  Phase phase() const { return phase_; }

  /// Waits for pending checkpoints and closes logs. Idempotent. With `checkpoint.backend: dcp` all ranks call it. Not a
  /// hook. `dl::run` calls it before any member is destroyed; call it yourself on a runner that you own.
  /// @param timeout  seconds to wait for checkpoints; default: `checkpoint.wait_timeout` of the config
  /// @return false when checkpoints are still pending; nothing is then closed
  bool close(std::optional<double> timeout = std::nullopt);

  /// Stops the loops at the end of the accumulation window: the runner saves and throws `Stopped`. Callable from any
  /// thread. load_checkpoint() clears a request for which `Stopped` was thrown, so that the program can train on.
  /// @param signal  reported by Stopped::signal() and on_stop; under `dl::run` the exit code is 128 + signal
  void request_stop(int signal = 15) { requests_.stop.store(signal, std::memory_order_relaxed); }

  /// Ends train() after this epoch, or in step mode after this accumulation window. The run then evaluates, saves and
  /// counts as complete: restarting it trains no further unless `epochs` or `steps` is raised. To resume later, use
  /// request_stop(). For callbacks. Logs `reason`.
  void end_training(const std::string& reason) { (distributed() ? requests_.end : requests_.ended) = reason; }
  /// Evaluates all of `evaluate_splits()` at the end of the accumulation window, in the middle of a round. For
  /// callbacks, which receive the results in on_evaluate_end. metrics.jsonl records them; they never select the best
  /// checkpoint.
  void request_evaluation() { requests_.evaluation = true; }
  /// Saves `latest` at the end of the accumulation window. For callbacks; a single rank may call it.
  void request_save() { requests_.save = true; }

  // ---- callbacks and state of your own ------------------------------------------------------------------------------

  /// While the returned object lives, every rank holds the models' parameters in full (of a sliced layer: its slice),
  /// so that a callback can read or write them; with `fsdp`, each rank otherwise holds some rows. Returns null where
  /// parameters are never sharded. All ranks call it between steps: in on_result, not in on_gradients.
  /// @param writes  keep changes to the parameters
  virtual std::shared_ptr<void> gather_parameters(bool /*writes*/ = false) { return nullptr; }

  /// Adds a callback, which the runner then owns. Call it in the constructor of your class or before train():
  /// `add(MyCallback(...))`. @return the callback. @throws ConfigError when the name is taken or the pointer is null
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
  /// Saves and restores the state of your object with the run, under its name in `tracked`. The object must outlive the
  /// runner. Call it before initialize(), or StateError. @throws ConfigError when the name is taken. An exception of
  /// the object, and a checkpoint without its state, become a CheckpointError
  template <Checkpointable T>
  void register_state(const std::string& name, T& object) {
    register_state(name, {[&object] { return State(object.state_dict()); },
                          [&object](const State& state) { object.load_state_dict(state); }});
  }
  template <Checkpointable T>
  [[deprecated("use register_state")]] void track(const std::string& name, T& object) {
    register_state(name, object);
  }

  // ---- sinks --------------------------------------------------------------------------------------------------------

  /// Adds a sink for the run's numbers (telemetry/sink.hpp). It receives them from the start of training, or from this
  /// call on, in a separate thread of the main process. @throws ConfigError for null
  void add_sink(std::shared_ptr<Sink> sink);
  /// Records a number of your program in a separate line of metrics.jsonl and in all sinks, at the current step or at
  /// `step`. Meters and metrics do not need it. The write functions have no effect on other ranks and before training
  /// begins. Call them from the training thread. @throws MetricError when `name` is a key of the metric lines
  void write_score(const std::string& name, double score, const std::string& split,
                   std::optional<std::int64_t> step = std::nullopt);
  /// @param text  Markdown
  void write_text(const std::string& name, const std::string& text);
  /// Records the distribution of a tensor. Copies it on its device; does not wait for the device. @throws ConfigError
  /// for a complex or sparse tensor
  void write_histogram(const std::string& name, const at::Tensor& values);
  /// Records an image of shape [3 or 1, height, width] or [height, width]: integers from 0 to 255 or floats from 0 to
  /// 1. Values out of range are clamped. Copies it; does not wait for the device. @throws ConfigError for another shape
  void write_image(const std::string& name, const at::Tensor& image);

  // ---- checkpoints --------------------------------------------------------------------------------------------------

  /// Saves through the checkpoint manager. All ranks call it, because each adds its state (`ranks.<number>` in the
  /// checkpoint: generators, and loaders of `in_order: false`). By default training continues while the file is written
  /// (`checkpoint.async_mode`). Inside an accumulation window the save waits for its end: a checkpoint never holds
  /// partial gradients.
  /// @param name  alias to write, usually "latest"
  /// @param save_best  also writes `best` if the latest result has the best score
  /// @param last_step  the final save of a run, which also exports the model
  /// @param force  save even if the manager's interval has not passed
  /// @throws CheckpointError when the state cannot be taken, when a last or forced save without asynchronous saves
  /// cannot be written, and for any failure with `checkpoint.on_error: stop`. Failures of the thread that writes are
  /// logged and counted in checkpoint_manager().checkpoint_health(); wait_for_checkpoints() throws them
  void save_checkpoint(const std::string& name = "latest", bool save_best = true, bool last_step = false,
                       bool force = false);
  /// Saves the initial state for other runs to start from, on all ranks. `checkpoint.last_save_model_only` applies.
  /// Logs a warning when training has advanced. @throws CheckpointError
  void save_seed_checkpoint(const std::string& name = "seed");
  /// Waits until all saves are on disk, at most `checkpoint.wait_timeout` seconds. With `checkpoint.backend: dcp` all
  /// ranks call it. train() calls it at its end and before a stop. @throws CheckpointError on a timeout, or when the
  /// newest save under any name but `best` failed
  void wait_for_checkpoints();
  /// True when an earlier attempt finished the run and kept only the model (`checkpoint.last_save_model_only`), so that
  /// it cannot train further. Valid after initialize(), with `auto_resume`.
  bool is_finished() const;

  /// Restores a whole run: counters, generators, model, optimizer, scheduler, data position. If the checkpoint is in
  /// this run's directory, training continues there. All ranks call it: they wait for saves in progress, and for each
  /// other. @throws CheckpointError, ConfigError when parts are missing or a semantic option differs, StateError during
  /// train()
  void load_checkpoint(const std::filesystem::path& path);
  template <std::same_as<State> S>  // text converts to State, but here it is a path
  void load_checkpoint(const S& checkpoint) {
    restore(checkpoint);
  }

  /// Loads only weights, in any layout that match_weights() recognizes; those of the EMA if the file has them. Logs one
  /// warning for each kind of mismatch; with `options.strict` throws instead.
  /// @return loaded and missing names. @throws CheckpointError; the model is then unchanged
  WeightMatch load_pretrained(const std::filesystem::path& path, const PretrainedOptions& options = {});
  template <std::same_as<State> S>
  WeightMatch load_pretrained(const S& checkpoint, const PretrainedOptions& options = {}) {
    return restore_weights(checkpoint, options);
  }

  /// The payload of a checkpoint: the config ("runner"), counters and generators ("state"), data position
  /// ("dataloaders"), results, and the states of callbacks and registered objects ("tracked"); derived runners add
  /// their components and the position in the epoch ("loop"). Called when: a checkpoint is built, on the ranks that
  /// save, and before one is loaded with nested names in `checkpoint.exclude_from_loading`. Call the base and add to
  /// its result. Do not change model or optimizer here.
  virtual State state_dict();

  /// Compares the config, and restores counters, generators, seed and results; loaders, callbacks and registered
  /// objects follow. Called when: load_checkpoint has read and filtered a payload, before the components are loaded. An
  /// override must call the base. @throws ConfigError that lists the semantic options that differ, StateError before
  /// initialize()
  virtual void load_state_dict(const State& checkpoint);

  /// Calls dl::save() on the main process, or on every rank if `main_process_only` is false. @return `file`
  template <class T>
  std::filesystem::path save(T&& object, const std::filesystem::path& file, bool main_process_only = true) const {
    return main_process_only && !is_main_process() ? file : danling::save(std::forward<T>(object), file);
  }

  /// Writes summary.json with the status of the run. `dl::run` calls it; `error` is empty unless the run crashed.
  void write_summary(const std::string& status, const std::string& error = "", int signal = 0, int exit_code = 0);

  /// Reads a payload. Called when: load_checkpoint or load_pretrained is given a path; in initialize() for `resume`,
  /// `pretrained` and `distill.checkpoint`, before the run's directory is set up; in a roll-back, on ranks other than
  /// 0. Checkpoints that `auto_resume` finds are read by the checkpoint manager, except directories of shards, the
  /// model of a finished run, and the source of an interrupted copy. Override it to read from another location or
  /// format. Do not apply the payload here.
  virtual State read_checkpoint(const std::filesystem::path& path);

  // ---- services: the logger from construction on, the others after initialize() -------------------------------------

  /// Writes to the console and, once training has set up the run's directory, to the log file.
  Logger& logger();
  /// @throws StateError before initialize()
  Workspace& workspace();
  /// @throws StateError before initialize(), and without a manager
  CheckpointManager& checkpoint_manager();
  /// Replaces the checkpoint manager and closes the previous one. Call it in the constructor of your class or in
  /// init_checkpoint_manager. @throws StateError later
  void set_checkpoint_manager(std::unique_ptr<CheckpointManager> manager);

 protected:
  /// Copies the user's whole config, whose type the call deduces: `TorchRunner(config)`.
  /// @throws ConfigError when `config` is a base reference to a derived config, since the copy would lose its fields
  template <std::derived_from<RunnerConfig> C>
  explicit BaseRunner(const C& config) : BaseRunner(StoredConfig<RunnerConfig>(config)) {}
  explicit BaseRunner(StoredConfig<RunnerConfig> config);

  // ---- hooks of initialize(), in this order. Each is called once, on every rank; call the base unless it says not to.

  /// Joins the processes: builds the Parallelism that `stack` of the config names (see stacks()). Config and
  /// identity are set. Do not build the model or data here. An override that joins processes itself calls
  /// set_parallelism() in place of the base. All ranks must run the same loops over the same splits with the same
  /// `log_interval`; their numbers of batches may differ where gradients are not summed. The launcher's environment
  /// variables name the ranks; `init_method` of the config, or else the variable INIT_METHOD, is the address.
  /// @throws DistributedError when other processes do not join, ConfigError when `backend` cannot join them
  virtual void init_distributed();
  /// Builds the Parallelism that joins the processes of a launcher; by default that of `stack`. Called when:
  /// init_distributed runs, once, on every rank; not with `ft`.
  virtual std::unique_ptr<Parallelism> build_parallelism(const ProcessIdentity& identity);
  /// Replaces the Parallelism of the run and reseeds the generators if the seed of this rank changes. @throws
  /// StateError outside init_distributed
  void set_parallelism(std::unique_ptr<Parallelism> parallelism);
  /// Sets the checkpoint manager by set_checkpoint_manager(), unless the program has set one. The processes have
  /// joined. Write nothing: the run's directory is not set up yet.
  virtual void init_checkpoint_manager();
  /// Checks that `ft` applies: this class's init_distributed joins the processes. The checkpoint manager is set.
  virtual void init_fault_tolerance();
  /// Starts the heartbeat of `heartbeat.enabled`. Called when: training has set up the run's directory, before its
  /// first step, on every rank; with `ft`, also each time the ranks change. Not part of initialize().
  virtual void init_heartbeat();
  /// Adds the sink of `tensorboard: true`. Called when: initialize() runs and the key and `record` are set, after
  /// init_fault_tolerance, once, on every rank. Files are opened when training begins, on the main process. Override it
  /// to add another sink instead.
  virtual void init_tensorboard();
  /// The same for `wandb.enabled`.
  virtual void init_wandb();
  /// Builds loaders for the datasets that have none; the length of an epoch is known afterwards. The checkpoint to
  /// restore is already read, except with `checkpoint.backend: dcp`.
  virtual void build_dataloaders() = 0;
  /// Moves the model to the device and prepares it. Do not build the optimizer here.
  virtual void materialize_model() = 0;
  /// Builds the optimizer from the config unless the program has set one. The model is on its device.
  virtual void build_optimizer() = 0;
  /// Builds the scheduler from the config unless the program has set one. The optimizer is set.
  virtual void build_scheduler() = 0;
  /// Builds the metrics that the config names; they replace the program's. The scheduler is set.
  virtual void build_metrics() = 0;
  /// Loads `resume`, `auto_resume` or `pretrained`, in this order of precedence. All components are built.
  virtual void auto_restore();

  /// Selects deterministic algorithms for the whole process: LibTorch, cuDNN, oneDNN, cuBLAS; and fills uninitialised
  /// memory. The constructor calls it if `deterministic` is set. The destructor of the last runner that changed the
  /// settings restores the previous ones.
  static void set_deterministic();

  // ---- interface to derived runners ---------------------------------------------------------------------------------

  /// True when no epoch is in progress.
  virtual bool at_boundary() const = 0;
  /// True when a checkpoint taken now resumes exactly: is_between_updates(), and no callback of a step is running. A
  /// save at another time waits.
  virtual bool is_settled() const { return true; }
  /// True when no step and no accumulation window is open.
  virtual bool is_between_updates() const { return true; }
  /// A sentence for the log about work that close() would lose; empty: none.
  virtual std::string unfinished_work() const { return {}; }
  /// Makes the counters exact, which may wait for a device. Called before a checkpoint is built.
  virtual void synchronize_counters() {}
  virtual State dataloader_state() const = 0;
  /// Meters, metrics and losses of this rank in the middle of a pass; null outside of a pass. All ranks gather them for
  /// a save.
  virtual State pass_state() const { return {}; }
  /// While the returned object lives, components hold full parameters and states. Returns null where they are never
  /// sharded. All ranks call it, between steps. @param writes  keep changes to the parameters
  virtual std::shared_ptr<void> gather_full_state(bool /*writes*/) { return nullptr; }
  /// For sharded checkpoints: this rank's shards of a state with their offsets, and the box of a tensor that it loads.
  virtual ShardedState sharded_state(State state) const;
  virtual std::optional<ShardBox> shard_box(const std::string& path, at::IntArrayRef sizes) const;
  /// gather_full_state() for a checkpoint; null if each rank saves and loads its shards.
  std::shared_ptr<void> gather_checkpoint_state(bool writes) {
    return saves_shards_ ? nullptr : gather_full_state(writes);
  }
  /// True when checkpoints are directories of shards: `checkpoint.backend: dcp`.
  bool saves_shards() const { return saves_shards_; }
  /// Restores the components, each by a hook below.
  virtual void load_components(const State& checkpoint) = 0;
  /// Hooks that restore one part of a checkpoint, on every rank. Called when: load_checkpoint has restored counters and
  /// generators, once each, for parts that are in the checkpoint, set in the runner and not excluded from loading.
  /// Order: load_model, then load_ema, load_optimizer and load_scheduler of TorchRunnerBase, load_named_model for each
  /// of `models`, and load_dataloaders. load_pretrained calls load_model and load_named_model too. Override one to
  /// convert an older layout, and call the base with the result. Do not step, draw random numbers or load another part
  /// here.
  virtual void load_model(const State& state) = 0;
  /// Restores the weights of one of `models`.
  virtual void load_named_model(const std::string&, const State&) {}
  /// Restores the positions of the loaders, by split. Called last.
  virtual void load_dataloaders(const State& state) = 0;
  /// The payload of the `model` export: {"model": ...}, and the EMA if there is one.
  virtual State model_state_dict() const = 0;
  /// Converts `weights`, in the layout of model_state_dict(), for model.pth: merges adapters into their layers.
  virtual State exported_state_dict(const State& weights) const { return weights; }
  /// Text of metadata/model.yaml.
  virtual std::string model_metadata() const { return {}; }
  /// Writes further files of the `model` export next to model.pth, from `weights` in the layout of model_state_dict().
  /// Called when: model.pth is written, on the rank that writes it.
  virtual void export_files(const State&, const std::filesystem::path&) {}
  /// True when a higher score of this name is better. Empty when unknown: then lower is better for "loss", and higher
  /// for all others.
  virtual std::optional<bool> higher_is_better(std::string_view) const { return std::nullopt; }

  /// Adds facts of the run to summary.json: here the best and the latest result.
  virtual void fill_summary(RunSummary& summary) const;
  /// True when a signal, a request or the time limit stops the run. Costs one branch, with a time limit a clock read.
  bool stop_requested();

  /// True when `checkpoint.exclude_from_loading` names this top-level key of a checkpoint.
  bool excluded_from_loading(std::string_view key) const;
  detail::RunnerServices& services();

  EarlyStopping& early_stopping() const { return *early_stopping_; }

  /// Parts of the runner, each in a file of its name in src/runner. In a struct: the program may use these names.
  struct Internals {
    class Agreement;
    class Records;
    class Restorer;
    class Saver;
    class Setup;
    struct Tracked {
      std::function<State()> state_dict;
      std::function<void(const State&)> load_state_dict;
    };
  };

  RunnerState state_;
  ResultHistory results_;
  CallbackList callbacks_;
  detail::Requests requests_;
  detail::TimeLimit time_limit_;
  RunnerMode mode_ = RunnerMode::train;
  std::string split_;
  /// During an evaluation inside training, checkpoints hold the generators as of its start.
  bool rng_frozen_ = false;
  std::shared_ptr<detail::FaultState> fault_;  ///< null without `ft`
  std::shared_ptr<detail::SinkFeed> sinks_;
  bool makes_histograms_ = false;

 private:
  void register_state(const std::string& name, const Internals::Tracked& tracked);
  void restore(const State& checkpoint);
  WeightMatch restore_weights(const State& checkpoint, const PretrainedOptions& options);

  Phase phase_ = Phase::constructed;
  bool saves_shards_ = false;
  std::string failure_;
  std::string unsaved_best_, best_average_;
  std::unique_ptr<Logger> logger_;
  std::unique_ptr<CheckpointManager> own_manager_;  // set before services_ exists
  std::unique_ptr<detail::RunnerServices> services_;
  bool recording_begun_ = false;
  std::shared_ptr<void> kernel_settings_;  // restores the process's settings
  std::shared_ptr<EarlyStopping> early_stopping_;
  std::vector<std::pair<std::string, Internals::Tracked>> tracked_;
};

}  // namespace danling::inline v0
