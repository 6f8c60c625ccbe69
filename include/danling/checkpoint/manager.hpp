// Interface for saving and restoring checkpoints, independent of their storage.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Arguments of save_checkpoint: position and score of the run, name and priority of the save.
struct CheckpointRequest {
  std::string name = "latest";                 ///< name to publish under
  std::int64_t epoch = 0;                      ///< number of the epoch that ended, from 0
  std::int64_t global_step = 0;                ///< updates done
  bool step_mode = false;                      ///< the interval counts steps, not epochs
  bool is_best = false;                        ///< the run's score is the best so far
  bool save_best = true;                       ///< also publish `best` when `is_best`
  bool last_step = false;                      ///< the last save of the run: due regardless of the interval
  bool history = true;                         ///< an epoch (or step) just ended: the save may enter the history
  bool force = false;                          ///< due regardless of the interval
  bool due = false;                            ///< due by the interval, for a deferred save
  std::optional<double> score = std::nullopt;  ///< score of the current state, if any, for `keep_best_k`
  bool higher_is_better = false;
  bool export_model = true;  ///< on the last step, also write `model` with `latest`
};

/// Outcome of saves so far (DanLing's CheckpointHealth). Texts are empty without an event.
struct CheckpointHealth {
  std::int64_t error_count = 0;
  std::string first_error;
  std::string last_error;
  std::string last_failed_target;
  std::string last_failed_alias;
  std::int64_t success_count = 0;  ///< not in DanLing
  std::string last_successful_target;
  std::vector<std::string> last_successful_aliases;
  /// Names whose newest save failed, with the reason; only a save under the same name clears the entry. Contains `best`
  /// while the best state is not on disk under this name. Not in DanLing.
  std::map<std::string, std::string> failing;

  void record_failure(const std::string& error, const std::string& target, const std::string& alias = "");
  void record_success(const std::string& target, std::vector<std::string> aliases);
};

/// A skipped checkpoint, with the reason.
struct SkippedCheckpoint {
  std::filesystem::path path;
  std::string reason;
};

/// The newest readable checkpoint, and the newer unreadable ones, which the caller reports.
struct ValidCheckpoint {
  std::filesystem::path path;
  State state;
  std::vector<SkippedCheckpoint> skipped;
};

/// The state under the name `best`.
struct BestCheckpoint {
  bool exists = false;
  /// The index of the result that it was saved with; -1 for a whole state without a result, such as a save by steps
  /// before the first evaluation; empty if the file has no index, such as a model alone.
  std::optional<std::int64_t> index = std::nullopt;
};

/// The part of a run's history that belongs to an older checkpoint from which a run resumes.
struct CheckpointHistory {
  bool step_mode = false;
  std::int64_t progress = 0;                        ///< epochs (or steps) done: discards later ones
  std::optional<std::int64_t> best = std::nullopt;  ///< epochs (or steps) of the best state
};

/// Returns the reason to reject a valid checkpoint, or an empty string to accept it.
using CheckpointFilter = std::function<std::string(const State&)>;

/// Saves and restores checkpoints of one run. Called by one thread at a time; a manager may write on another thread.
class CheckpointManager {
 public:
  virtual ~CheckpointManager();

  /// Returns whether all ranks must call the saving functions together; otherwise only the main process calls them.
  virtual bool is_collective() const { return false; }

  /// Saves if the request is due: forced, last step, by the interval, or best so far. A manager that writes on another
  /// thread returns once the state is copied; throw_failure() then throws its errors. @return true if it was due
  /// @throws CheckpointError; earlier checkpoints stay intact, and checkpoint_health() counts the failure
  virtual bool save_checkpoint(const CheckpointRequest& request) = 0;
  /// Saves the model only, for publishing and `pretrained`.
  virtual void save_model_checkpoint(const std::string& name) = 0;

  /// Reads one checkpoint; its tensors are on the CPU. @throws CheckpointError that names file and reason
  virtual State load_checkpoint(const std::filesystem::path& path) = 0;
  /// Reads the newest valid checkpoint; empty if there is no checkpoint.
  /// @throws CheckpointError that lists all checkpoints and reasons if none is valid
  virtual std::optional<ValidCheckpoint> load_newest_valid() = 0;

  // For runs that resume. A manager that stores checkpoints outside the runs' directories overrides these; the defaults
  // find, adopt and publish nothing.

  /// The newest valid checkpoint of an earlier run in `directory` that `filter` accepts. @throws CheckpointError as
  /// load_newest_valid()
  virtual std::optional<ValidCheckpoint> load_newest_valid_from(const std::filesystem::path& directory,
                                                                const CheckpointFilter& filter);
  /// The `latest` of such a run if it holds only the model, as after `last_save_model_only`; otherwise empty.
  virtual std::optional<std::filesystem::path> find_final_model(const std::filesystem::path& directory);
  /// Returns whether this is the newest state saved here.
  virtual bool is_latest(const std::filesystem::path& checkpoint) const;
  /// Adopts the history and the best state of the run that saved into `directory`, up to the position at which this run
  /// resumes. @return the checkpoints that could not be adopted, with reasons
  virtual std::vector<std::string> adopt(const std::filesystem::path& directory, const CheckpointHistory& history);
  /// Empty if no best state is saved, or if it is unknown.
  virtual std::optional<BestCheckpoint> best_checkpoint() const;
  /// Reads `best`, after all pending saves; empty if there is none. Unlike load_checkpoint(), changes nothing.
  /// @throws CheckpointError as load_checkpoint()
  virtual std::optional<State> load_best();
  /// Publishes the state with this result, stored under any name, as `best`. @return that name, or empty
  virtual std::optional<std::string> republish_best(std::int64_t index, std::vector<std::string>& problems);

  /// Returns whether a save on another thread failed and has not thrown yet. Costs one load: check at step boundaries.
  bool has_failure() const { return unthrown_.load(std::memory_order_relaxed); }
  /// Throws the first unreported failure of a save on another thread. @throws CheckpointError
  void throw_failure();
  /// Returns whether take_warning() has text. Costs one load: check at step boundaries.
  bool has_warning() const { return has_warning_.load(std::memory_order_relaxed); }
  /// Returns, once, a message that is not a failure, such as that the directory with the earlier checkpoints was
  /// removed; empty without a message.
  std::string take_warning();
  /// Waits until all saves are on disk, at most `timeout` seconds (by default without limit); returns true if they are.
  /// @throws CheckpointError for the first failure that was not reported
  virtual bool wait(std::optional<double> timeout);
  /// Call it before tensors change: orders later changes after the copies of a save in progress. Waits neither for the
  /// disk nor, on a device, for the copies.
  virtual bool maybe_wait_for_staging(std::optional<double> timeout);
  /// Waits as wait(), then refuses saves. May be called again. After a timeout the manager stays open.
  virtual bool close(std::optional<double> timeout) = 0;

  /// Returns a copy: saves may continue meanwhile.
  CheckpointHealth checkpoint_health() const;
  /// Seconds from the request of the last successful save until it was on disk; 0 before the first, and for a manager
  /// that does not call record_save_seconds(). A run with a time limit reserves this time.
  double last_save_seconds() const { return last_save_seconds_.load(std::memory_order_relaxed); }

 protected:
  /// `name`: the requested name of the save.
  void record_success(const std::string& name, const std::string& target, std::vector<std::string> aliases);
  void record_save_seconds(double seconds) { last_save_seconds_.store(seconds, std::memory_order_relaxed); }
  /// Clears the failure recorded under `name`, if its reason was `error`; an empty `error` matches any.
  void forget_failure(const std::string& name, const std::string& error = "");
  /// `thrown`: the caller already gets an exception; otherwise throw_failure() throws it.
  void record_failure(const std::string& name, const std::string& error, const std::string& target,
                      const std::string& alias, bool thrown);
  /// Sets the text of take_warning().
  void record_warning(const std::string& text);
  /// Records that the best state is not on disk as `best`.
  void record_lost_best(const std::string& error);

 private:
  mutable std::mutex health_mutex_;
  CheckpointHealth health_;
  std::string failure_;
  std::atomic<bool> unthrown_{false};
  std::string warning_;
  std::atomic<bool> has_warning_{false};
  std::atomic<double> last_save_seconds_{0.0};
};

/// Returns whether the interval, `force` or `last_step` requires a save. An interval of 0 or less never does.
bool should_persist(const CheckpointRequest& request, std::int64_t interval);

/// The history name if the request lies on the interval: `ckpt-e000012` after 12 epochs, `ckpt-s000000012000` after
/// 12,000 steps. Empty otherwise, even for a forced save.
std::optional<std::string> history_name(const CheckpointRequest& request, std::int64_t interval);

}  // namespace danling::inline v0
