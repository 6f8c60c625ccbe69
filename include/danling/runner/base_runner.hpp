// The part of a runner that knows no model: configuration, identity, workspace, progress, results and life cycle.
#pragma once

#include <atomic>
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

#include <c10/core/Device.h>

#include <danling/checkpoint/io.hpp>
#include <danling/checkpoint/pretrained.hpp>
#include <danling/config/stored.hpp>
#include <danling/core/error.hpp>
#include <danling/runner/callback.hpp>
#include <danling/runner/mode.hpp>
#include <danling/runner/results.hpp>
#include <danling/runner/runner_config.hpp>
#include <danling/runner/state.hpp>
#include <danling/runner/stopped.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

class Workspace;
class Logger;
class CheckpointManager;
class Group;
class Parallelism;
struct StepPacket;
class EarlyStopping;
struct CodeIdentity;
struct RunSummary;

namespace detail {
struct RunnerServices;
}  // namespace detail

/// Life has two phases, because constructors cannot call overrides. Construction normalises the config, learns the
/// process identity and seeds the generators: no virtual call, no file, no thread. `initialize()` does the rest, once.
class BaseRunner {
 public:
  enum class Phase { constructed, initializing, ready, failed, closed };

  BaseRunner(const BaseRunner&) = delete;
  BaseRunner& operator=(const BaseRunner&) = delete;
  virtual ~BaseRunner();

  // ---- configuration and identity -----------------------------------------------------------------------------------

  /// The runner's own copy of the config it was given, normalised. `config<MyConfig>()` gives it with its own type.
  /// @throws ConfigError when the runner was built from another type.
  template <class C = RunnerConfig>
  const C& config() const {
    return config_.as<C>();
  }

  /// `<lineage>-<experiment>`, or the `name` of the config.
  std::string name() const;
  /// Stable over restarts, and from construction on: `<code id>-<config id>`, or the config id alone where there is no
  /// code identity.
  std::string id() const;
  /// 12 hex digits of the hash of the canonical config.
  const std::string& config_id() const { return config_id_; }
  /// The commit that the program runs from; empty outside a repository. The first call of this or of id() asks git.
  const std::string& code_id() const;
  /// When this attempt began, as `YYYYMMDD-HHMMSS`-like text that is fit for file names.
  const std::string& timestamp() const { return timestamp_; }

  /// The seed of the run: configured, or generated and then restored with the run. Each rank adds its number.
  std::uint64_t seed() const { return seed_; }

  /// The processes that this run computes with, and what they do together.
  Parallelism& parallelism() const { return *parallelism_; }
  const Group& group() const;
  std::int64_t rank() const;
  std::int64_t local_rank() const;
  std::int64_t world_size() const;
  bool distributed() const { return world_size() > 1; }
  bool is_main_process() const { return rank() == 0; }
  bool is_local_main_process() const { return local_rank() == 0; }
  /// Where the model lives: `device` of the config, or the first CUDA device of this process, or the CPU.
  at::Device device() const { return device_; }

  // ---- progress -----------------------------------------------------------------------------------------------------

  const RunnerState& state() const { return state_; }
  RunnerMode mode() const { return mode_; }
  /// The split in progress, or the last one; train() clears it when it returns.
  const std::string& split() const { return split_; }
  const ResultBook& results() const { return results_; }
  /// Where the best checkpoint is not that of the best result, since it could not be saved: which it is, and why. Empty
  /// where it is. Known from the end of train() on, and after a resume.
  const std::string& unsaved_best() const { return unsaved_best_; }

  std::optional<std::int64_t> epochs() const;
  /// Optimizer updates of the whole run: configured, or derived from the epochs and the length of the data.
  std::optional<std::int64_t> steps() const;
  bool is_step_mode() const { return !epochs(); }
  std::int64_t accum_steps() const;
  /// Between 0 and 1. @throws StateError when neither steps nor epochs are known.
  double progress() const;
  /// Epochs (epoch mode) or updates (step mode) between saves.
  std::int64_t checkpoint_interval() const;
  /// Micro-batches (epoch mode) or updates (step mode) between log lines.
  std::int64_t log_interval() const;
  /// The split that the best checkpoint is chosen by: configured, else the first that begins with "val", else the
  /// first.
  std::optional<std::string> score_split() const;

  /// Configured or inferred split names, sorted.
  std::vector<std::string> train_splits() const;
  std::vector<std::string> evaluate_splits() const;
  /// Splits that are evaluated once, at the end, and take no part in the choice of the best.
  std::vector<std::string> test_splits() const;

  /// How people know the result with this index, on the console and in files: the epoch, counted from 1, or the step.
  std::int64_t round_number(std::int64_t index) const { return is_step_mode() ? index : index + 1; }
  std::string round_name(std::int64_t index) const;  ///< `epoch 28` or `step 1200`

  // ---- life cycle ---------------------------------------------------------------------------------------------------

  /// Runs the second phase once: process group, checkpoint manager, fault tolerance, data, model, optimizer, scheduler,
  /// restore. Writes nothing: train(), or the first save, takes the run's directory, so that a program that only
  /// evaluates leaves a finished run where it is. The drivers call it; calling it again does nothing.
  /// @throws StateError on re-entry from a hook, after a failure (it says again what failed) and after close().
  void initialize();
  Phase phase() const { return phase_; }

  /// Drains checkpoints and closes logs. Idempotent. Not a hook: `dl::run` calls it while all members live; call it
  /// yourself on a runner that you own.
  /// @param timeout seconds to wait for checkpoints; without one, `checkpoint.wait_timeout` of the config.
  /// @return false when the checkpoints did not drain in time; nothing is then closed.
  bool close(std::optional<double> timeout = std::nullopt);

  /// Asks the loops to stop at the next safe point: the accumulation window is finished, the run is saved and `Stopped`
  /// is thrown. From any thread. It holds until load_checkpoint().
  void request_stop(int signal = 15) { requests_.stop.store(signal, std::memory_order_relaxed); }

  /// Ends train() as if its boundary were reached: in epoch mode with this epoch, in step mode with this window; what
  /// is in progress is evaluated and saved as the last. For callbacks. `reason` is logged.
  void end_training(const std::string& reason) { (distributed() ? requests_.end : requests_.ending) = reason; }
  /// Evaluates whole `evaluate_splits()` where the accumulation window ends, in the middle of a round: for callbacks,
  /// which get the numbers by on_evaluate_end. They enter metrics.jsonl, and not the results that the best is chosen
  /// from.
  void request_evaluation() { requests_.evaluation = true; }
  /// Saves `latest` where the accumulation window ends: for callbacks. Unlike save_checkpoint() one rank may ask alone.
  void request_save() { requests_.save = true; }

  // ---- callbacks and state of your own ------------------------------------------------------------------------------

  /// Adds a callback, which the runner then owns: `add(MyCallback(...))` in the constructor of your class, or before
  /// train(). @return it. @throws ConfigError where there is one of its name
  template <std::derived_from<Callback> T>
  T& add(T callback) {
    return add(std::make_shared<T>(std::move(callback)));
  }
  template <std::derived_from<Callback> T>
  T& add(const std::shared_ptr<T>& callback) {
    const bool is_derived = callback != nullptr && typeid(*callback.get()) != typeid(T);
    callbacks_.add(callback, is_derived || detail::listens_to_steps<T>());
    return *callback;
  }
  /// Saves and restores the state of an object of yours with the run, under `tracked.<name>`. The object must outlive
  /// the runner. Call it before initialize(). @throws ConfigError where there is one of this name
  template <Checkpointable T>
  void track(const std::string& name, T& object) {
    track(name, {[&object] { return State(object.state_dict()); },
                 [&object](const State& state) { object.load_state_dict(state); }});
  }

  // ---- checkpoints --------------------------------------------------------------------------------------------------

  /// Saves through the checkpoint manager. All ranks call it: one that writes nothing gives the state that is its own
  /// alone (`ranks.<number>` in the checkpoint: generators, and loaders of `in_order: false`).
  /// By default the disk is written while training goes on (`checkpoint.async_mode`). Inside a training step or an
  /// accumulation window the save is taken where the window ends: partial gradients are never part of a checkpoint.
  /// @param name alias to write, "latest" usually.
  /// @param last_step the final save of a run: the model alone is exported too.
  /// @param force save whatever the manager's cadence says.
  /// @throws CheckpointError when the last or a forced save fails, and with `checkpoint.on_error: stop`; other failures
  /// are logged and counted in checkpoint_manager().checkpoint_health().
  void save_checkpoint(const std::string& name = "latest", bool save_best = true, bool last_step = false,
                       bool force = false);
  /// Saves the state that a run starts from, to start others from the same one: through the path of the last save, so
  /// that `checkpoint.last_save_model_only` applies. Warns when training has advanced.
  void save_seed_checkpoint(const std::string& name = "seed");
  /// Waits until everything saved is on disk, at most `checkpoint.wait_timeout` seconds.
  /// Called by train() at its end and before a stop. @throws CheckpointError when the newest save under any name
  /// failed, or the time is over
  void settle_checkpoints();
  /// Whether an earlier start ended the run and kept the model alone (`checkpoint.last_save_model_only`), so that there
  /// is nothing to do and nothing to go on from. Known after initialize(), with `auto_resume`.
  bool is_finished() const;

  /// Restores a whole run: counters, generators, model, optimizer, scheduler, data position.
  /// Before training a checkpoint of the run's own directory is gone on with there.
  /// @throws CheckpointError, ConfigError when parts are missing or the config differs in what it means, StateError
  /// inside of a training: let train() end by an exception or a stop first, then call it again.
  void load_checkpoint(const std::filesystem::path& path);
  template <std::same_as<State> S>  // a State is made from text too, and text here means a path
  void load_checkpoint(const S& checkpoint) {
    restore(checkpoint);
  }

  /// Loads the model's weights alone, from whatever layout match_weights() finds them in; those of the EMA when there
  /// are any. What does not match is one warning for each kind, or with `options.strict` the error.
  /// @return what was loaded and what was not. @throws CheckpointError; the model is then unchanged
  WeightMatch load_pretrained(const std::filesystem::path& path, const PretrainedOptions& options = {});
  template <std::same_as<State> S>
  WeightMatch load_pretrained(const S& checkpoint, const PretrainedOptions& options = {}) {
    return restore_weights(checkpoint, options);
  }

  /// The payload of a checkpoint: the config ("runner"), counters and generators ("state"), data position
  /// ("dataloaders"), results and the place in the epoch ("loop"); derived runners add their components.
  /// Called when: a checkpoint is built, on the ranks that save; and before one is loaded that
  /// `checkpoint.exclude_from_loading` leaves parts of a part out of. Call the base and add to what it gives. Do not
  /// change model or optimizer here.
  virtual State state_dict();

  /// Restores what the base wrote into `state_dict()`.
  /// Called when: load_checkpoint has read and filtered a payload, before the components are loaded.
  /// @throws ConfigError with a diff when the checkpoint's config means something else.
  virtual void load_state_dict(const State& checkpoint);

  /// dl::save() on the main process, or with `main_process_only` false on every rank. @return `file`
  template <class T>
  std::filesystem::path save(T&& object, const std::filesystem::path& file, bool main_process_only = true) const {
    return main_process_only && !is_main_process() ? file : danling::save(std::forward<T>(object), file);
  }

  /// Writes summary.json: how the run ended. `dl::run` calls it; `error` is empty unless the run crashed.
  void write_summary(const std::string& status, const std::string& error = "", int signal = 0, int exit_code = 0);

  /// Reads a payload. Called when: load_checkpoint or load_pretrained is given a path, and once in initialize() for
  /// `resume` and `pretrained`, before the run's directory is taken. Override it to read another place or format; do
  /// not apply anything here.
  virtual State read_checkpoint(const std::filesystem::path& path);

  // ---- services, the logger from construction on, the others after initialize() -------------------------------------

  Logger& logger();
  Workspace& workspace();
  CheckpointManager& checkpoint_manager();
  /// Binds a manager of your own: in the constructor of your class, or in init_checkpoint_manager, where the one before
  /// is closed. @throws StateError later.
  void set_checkpoint_manager(std::unique_ptr<CheckpointManager> manager);

 protected:
  /// Keeps the user's whole config. The type is deduced at the call: `TorchRunner(config)`.
  /// @throws ConfigError when `config` is a base reference to a derived config, which would lose its fields.
  template <std::derived_from<RunnerConfig> C>
  explicit BaseRunner(const C& config) : BaseRunner(StoredConfig<RunnerConfig>(config)) {}

  // ---- hooks of initialize(), in this order. Each is called once, on every rank; call the base unless it says not to.

  /// Joins the processes. Before: config, identity. Do not build the model or data here. An override that joins others
  /// itself, in place of the base, calls set_parallelism(). All its processes must run the same loops over the same
  /// splits with the same `log_interval`. Their numbers of batches may differ where gradients are not added up.
  /// This release runs one process: @throws DistributedError when a launcher started more.
  virtual void init_distributed();
  /// Who this process is from now on, and what it does together with others. Generators begin anew where their seed
  /// differs by it. @throws StateError anywhere but in init_distributed.
  void set_parallelism(std::unique_ptr<Parallelism> parallelism);
  /// Binds the checkpoint manager, through set_checkpoint_manager(), unless there is one. Before: processes joined,
  /// paths known; the run's directory is not taken yet, so write nothing.
  virtual void init_checkpoint_manager();
  /// Optional fault tolerance; does nothing here. Before: the checkpoint manager is bound.
  virtual void init_fault_tolerance();
  /// Builds loaders for the datasets that have none. Before: the checkpoint to restore is read. After it the length of
  /// an epoch is known.
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

  /// Fixes algorithms. Called during construction when `deterministic` is set; affects the whole process.
  static void set_deterministic();

  // ---- what derived runners supply ----------------------------------------------------------------------------------

  virtual std::optional<std::int64_t> steps_per_epoch() const = 0;
  /// Batches in a split's epoch; nothing when it has no length.
  virtual std::optional<std::int64_t> split_length(std::string_view split) const = 0;
  struct SplitInfo {
    std::string name;
    bool train;  ///< the dataset says that it is for training
  };
  virtual std::vector<SplitInfo> splits() const = 0;
  /// Whether no epoch is in progress.
  virtual bool at_boundary() const = 0;
  /// Whether a checkpoint taken now resumes exactly: no step and no accumulation window is open.
  virtual bool is_settled() const { return true; }
  virtual State dataloader_state() const = 0;
  /// Restores what load_state_dict does not: gives each component its part, by the hooks below.
  virtual void load_components(const State& checkpoint) = 0;
  /// Hooks that put one part of a checkpoint back, on every rank. Called when: load_checkpoint has restored counters
  /// and generators, once each, in the order in which they stand here and in TorchRunnerBase, for parts that are in the
  /// checkpoint, bound in the runner and not excluded from loading; load_model also by load_pretrained, with the
  /// weights of the model alone. Override one to convert an older layout, and call the base with what comes out. Do not
  /// step, draw random numbers or load another part here.
  virtual void load_model(const State& state) = 0;
  /// One of several models.
  virtual void load_named_model(const std::string&, const State&) {}
  /// By split: the positions of the loaders. Called last.
  virtual void load_dataloaders(const State& state) = 0;
  /// The payload of the `model` export: {"model": ...} and the EMA when there is one.
  virtual State model_state_dict() const = 0;
  /// Whether a higher score of this name is better; nothing when that is not known: "loss" is then better when lower,
  /// anything else when higher.
  virtual std::optional<bool> higher_is_better(std::string_view) const { return std::nullopt; }

  /// Adds what summary.json says of the run besides how it ended: the best and the latest result.
  virtual void fill_summary(RunSummary& summary) const;
  /// Throws `Stopped` after saving, once a stop was asked for. The loops call it where a run may be cut. `save` is
  /// false where nothing changed since the last save. `stop`: as the ranks agreed on it.
  void maybe_stop(bool save, bool stop);
  /// The same where no step is open: the ranks agree here, and on what callbacks have asked for.
  void maybe_stop(bool save);
  StepPacket agree(double weight = 0.0);
  [[noreturn]] static void fail_with_others();
  StepPacket requested() const;  ///< of this process
  bool stop_requested() const;

  /// Whether `checkpoint.exclude_from_loading` names this top-level key of a checkpoint.
  bool excluded_from_loading(std::string_view key) const;
  detail::RunnerServices& services();

  EarlyStopping& early_stopping() const { return *early_stopping_; }

  /// Requests of callbacks; `stop` alone may come from any thread.
  struct Requests {
    std::atomic<int> stop{0};           ///< the signal
    std::optional<std::string> end;     ///< of several processes: asked of this one, not agreed on yet
    std::optional<std::string> ending;  ///< why training ends before its boundary
    bool evaluation = false;
    bool save = false;
  };

  // Parts of what a run does, each in a file of src/runner of its name.
  class Records;
  class Restorer;
  class Saver;

  RunnerState state_;
  ResultBook results_;
  CallbackList callbacks_;
  Requests requests_;
  RunnerMode mode_ = RunnerMode::train;
  std::string split_;
  /// While a split is evaluated inside training, checkpoints hold the generators as they were when it began.
  bool rng_frozen_ = false;

 private:
  explicit BaseRunner(StoredConfig<RunnerConfig> config);

  struct Tracked {
    std::function<State()> state_dict;
    std::function<void(const State&)> load_state_dict;
  };
  void track(const std::string& name, const Tracked& tracked);
  void initialize_once();
  void initialize_unless_initializing();
  void restore(const State& checkpoint);
  WeightMatch restore_weights(const State& checkpoint, const PretrainedOptions& options);
  void make_services();
  void check_split_names() const;
  void check_lengths() const;
  const CodeIdentity& code() const;

  StoredConfig<RunnerConfig> config_;
  std::unique_ptr<Parallelism> parallelism_;
  at::Device device_{at::kCPU};
  std::string config_id_;
  mutable std::unique_ptr<CodeIdentity> code_;
  std::string timestamp_;
  std::uint64_t seed_ = 0;
  Phase phase_ = Phase::constructed;
  std::string failure_;
  std::string unsaved_best_;
  std::unique_ptr<Logger> logger_;
  std::unique_ptr<CheckpointManager> own_manager_;  // set before there are services
  std::unique_ptr<detail::RunnerServices> services_;
  bool recording_begun_ = false;
  std::shared_ptr<EarlyStopping> early_stopping_;
  std::vector<std::pair<std::string, Tracked>> tracked_;
};

}  // namespace danling::inline v0
