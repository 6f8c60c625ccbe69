// What saves and restores the checkpoints of a run, whatever they are stored in.
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

/// One call of save_checkpoint: where the run is and what is asked for.
struct CheckpointRequest {
  std::string name = "latest";   ///< the name to publish
  std::int64_t epoch = 0;        ///< number of the epoch that ended, from 0
  std::int64_t global_step = 0;  ///< optimizer steps done
  bool step_mode = false;        ///< the interval counts steps, not epochs
  bool is_best = false;          ///< the run's score is the best so far
  bool save_best = true;         ///< publish `best` too when `is_best`
  bool last_step = false;        ///< the last save of the run: due whatever the interval
  bool history = true;           ///< the run is where an epoch (or step) ends: it may enter the history
  bool force = false;            ///< due whatever the interval
  bool due = false;              ///< on the interval, as it was where a save was put off until now
  std::optional<double> score =
      std::nullopt;  ///< of the state as it is, where it has one: what `keep_best_k` chooses by
  bool higher_is_better = false;
  bool export_model = true;  ///< the last save of `latest` writes `model` too
};

/// How saving went so far (DanLing's CheckpointHealth). Texts are empty as long as there is nothing to say.
struct CheckpointHealth {
  std::int64_t error_count = 0;
  std::string first_error;
  std::string last_error;
  std::string last_failed_target;
  std::string last_failed_alias;
  std::string last_successful_target;
  std::vector<std::string> last_successful_aliases;
  /// Names whose newest save failed, and why: the success of one does not make another good. `best` is among them as
  /// long as the best state is not on disk under this name. Not in DanLing.
  std::map<std::string, std::string> failing;

  void record_failure(const std::string& error, const std::string& target, const std::string& alias = "");
  void record_success(const std::string& target, std::vector<std::string> aliases);
};

/// A checkpoint that was passed over, and why.
struct SkippedCheckpoint {
  std::filesystem::path path;
  std::string reason;
};

/// The newest checkpoint that could be read, with the newer ones that could not: report those.
struct SoundCheckpoint {
  std::filesystem::path path;
  State state;
  std::vector<SkippedCheckpoint> skipped;
};

/// The state under the name `best`.
struct BestCheckpoint {
  bool exists = false;
  /// The index of the result that it was saved with, -1 for a whole state without one, as by steps before the first
  /// evaluation; nothing where it does not say, as a model alone.
  std::optional<std::int64_t> index = std::nullopt;
};

/// Of a run that goes on elsewhere than in its newest checkpoint: which of the checkpoints of before are still its own.
struct CheckpointHistory {
  bool step_mode = false;
  std::int64_t progress = 0;                        ///< epochs (or steps) done: later ones are another future's
  std::optional<std::int64_t> best = std::nullopt;  ///< epochs (or steps) of the best state
};

/// Why a sound checkpoint will not do, or an empty string when it will.
using CheckpointRefusal = std::function<std::string(const State&)>;

/// Saves and restores checkpoints of one run. Called by one thread at a time; a manager may write on its own.
class CheckpointManager {
 public:
  virtual ~CheckpointManager();

  /// Whether every rank must call the saving functions together, or only the main process calls them.
  virtual bool is_collective() const { return false; }

  /// Saves when the request is due: forced, the last step, on the interval, or the best so far. A manager that writes
  /// on its own thread returns once the state is copied; throw_failure() tells how it went. @return whether it was due
  /// @throws CheckpointError; earlier checkpoints stay whole and the failure is counted in checkpoint_health()
  virtual bool save_checkpoint(const CheckpointRequest& request) = 0;
  /// Saves the model alone, for publishing and `pretrained`.
  virtual void save_model_checkpoint(const std::string& name) = 0;

  /// Reads one checkpoint; its tensors are on the CPU. @throws CheckpointError that names file and reason
  virtual State load_checkpoint(const std::filesystem::path& path) = 0;
  /// Reads the newest checkpoint that is sound, or nothing when there is none at all.
  /// @throws CheckpointError that lists every one and its reason when there are some and none is sound
  virtual std::optional<SoundCheckpoint> newest_sound() = 0;

  // For a run that resumes. A manager that keeps checkpoints elsewhere than in the runs' directories overrides these;
  // without it nothing is found, adopted or made anew.

  /// The newest sound checkpoint of an earlier run, whose checkpoints lie in `directory`, that `refusal` does not pass
  /// over. @throws CheckpointError as newest_sound()
  virtual std::optional<SoundCheckpoint> newest_sound_in(const std::filesystem::path& directory,
                                                         const CheckpointRefusal& refusal);
  /// The `latest` of such a run where it holds the model alone, as `last_save_model_only` leaves it; else nothing.
  virtual std::optional<std::filesystem::path> finished_model_in(const std::filesystem::path& directory);
  /// Whether this is the newest state that is saved here.
  virtual bool is_latest(const std::filesystem::path& checkpoint) const;
  /// Makes the history and the best state of the run that saved into `directory` those of this one, up to where this
  /// one goes on. @return what could not be adopted, and why
  virtual std::vector<std::string> adopt(const std::filesystem::path& directory, const CheckpointHistory& history);
  /// Nothing where nothing is saved, or it cannot be said.
  virtual std::optional<BestCheckpoint> best_checkpoint() const;
  /// Reads `best`, once everything asked for is on disk; nothing where there is none. Changes nothing, unlike
  /// load_checkpoint(). @throws CheckpointError as that
  virtual std::optional<State> load_best();
  /// Publishes as `best` the state with this result, which may lie under another name. @return that name, or nothing
  virtual std::optional<std::string> remake_best(std::int64_t index, std::vector<std::string>& problems);

  /// Whether a save on another thread failed and was not thrown yet. Costs one load: ask at every step boundary.
  bool has_failure() const { return unthrown_.load(std::memory_order_relaxed); }
  /// Throws the first failure of a save on another thread that was not thrown yet. @throws CheckpointError
  void throw_failure();
  /// Whether take_notice() has something to say. Costs one load: ask at every step boundary.
  bool has_notice() const { return noticed_.load(std::memory_order_relaxed); }
  /// News that is no failure, as that somebody removed the directory with the earlier checkpoints. Returned once; empty
  /// where there is none.
  std::string take_notice();
  /// Waits until everything asked for is on disk, at most `timeout` seconds; says whether it is. Then throw_failure().
  virtual bool wait(std::optional<double> timeout);
  /// Call before tensors change: afterwards changes are ordered behind the copies that a save has begun. Waits neither
  /// for the disk nor, on a device, for the copies themselves.
  virtual bool maybe_wait_for_staging(std::optional<double> timeout);
  /// Waits as wait() does, then accepts no further saves. May be called again. After a timeout nothing is closed.
  virtual bool close(std::optional<double> timeout) = 0;

  /// A copy: saving may go on meanwhile.
  CheckpointHealth checkpoint_health() const;

 protected:
  /// `name`: what the save was asked for by.
  void record_success(const std::string& name, const std::string& target, std::vector<std::string> aliases);
  /// Takes back the failure recorded under `name`, if its reason was `error`; an empty `error` stands for any.
  void forget_failure(const std::string& name, const std::string& error = "");
  /// `thrown`: the caller learns of it by an exception; otherwise throw_failure() will throw it.
  void record_failure(const std::string& name, const std::string& error, const std::string& target,
                      const std::string& alias, bool thrown);
  /// For take_notice().
  void record_notice(const std::string& text);
  /// The best state is not on disk as `best`.
  void record_lost_best(const std::string& error);

 private:
  mutable std::mutex health_mutex_;
  CheckpointHealth health_;
  std::string failure_;
  std::atomic<bool> unthrown_{false};
  std::string notice_;
  std::atomic<bool> noticed_{false};
};

/// Whether the interval, `force` or `last_step` ask for a save. An interval of 0 or less never does.
bool should_persist(const CheckpointRequest& request, std::int64_t interval);

/// The history name when the request lies on the interval: `ckpt-e000012` after 12 epochs, `ckpt-s000000012000` after
/// 12,000 steps. Nothing otherwise, also when the save is forced.
std::optional<std::string> history_name(const CheckpointRequest& request, std::int64_t interval);

}  // namespace danling::inline v0
