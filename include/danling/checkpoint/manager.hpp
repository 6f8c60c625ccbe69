// What saves and restores the checkpoints of a run, whatever they are stored in.
#pragma once

#include <cstdint>
#include <filesystem>
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
};

/// How saving went so far (DanLing's CheckpointHealth). Texts are empty as long as there is nothing to say.
struct CheckpointHealth {
  std::int64_t error_count = 0;
  std::string first_error;
  std::string last_error;
  std::string last_failed_target;
  std::string last_successful_target;
  std::vector<std::string> last_successful_aliases;

  void record_failure(const std::string& error, const std::string& target);
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

/// Saves and restores checkpoints of one run. One thread at a time.
class CheckpointManager {
 public:
  virtual ~CheckpointManager();

  /// Whether every rank must call the saving functions together, or only the main process calls them.
  virtual bool is_collective() const { return false; }

  /// Saves when the request is due: forced, the last step, on the interval, or the best so far.
  /// @throws CheckpointError; earlier checkpoints stay whole and the failure is counted in checkpoint_health()
  virtual void save_checkpoint(const CheckpointRequest& request) = 0;
  /// Saves the model alone, for publishing and `pretrained`.
  virtual void save_model_checkpoint(const std::string& name) = 0;

  /// Reads one checkpoint; its tensors are on the CPU. @throws CheckpointError that names file and reason
  virtual State load_checkpoint(const std::filesystem::path& path) = 0;
  /// Reads the newest checkpoint that is sound, or nothing when there is none at all.
  /// @throws CheckpointError that lists every one and its reason when there are some and none is sound
  virtual std::optional<SoundCheckpoint> newest_sound() = 0;

  /// Waits until everything asked for is on disk, at most `timeout` seconds; says whether it is.
  virtual bool wait(std::optional<double> timeout);
  /// Waits until tensors may be changed again, that is, until what is being saved has been copied.
  virtual bool maybe_wait_for_staging(std::optional<double> timeout);
  /// Waits as wait() does, then accepts no further saves. May be called again.
  virtual bool close(std::optional<double> timeout) = 0;

  const CheckpointHealth& checkpoint_health() const { return health_; }

 protected:
  CheckpointHealth health_;
};

/// Whether the interval, `force` or `last_step` ask for a save. An interval of 0 or less never does.
bool should_persist(const CheckpointRequest& request, std::int64_t interval);

/// The history name when the request lies on the interval: `ckpt-e000012` after 12 epochs, `ckpt-s000000012000` after
/// 12,000 steps. Nothing otherwise, also when the save is forced.
std::optional<std::string> history_name(const CheckpointRequest& request, std::int64_t interval);

}  // namespace danling::inline v0
