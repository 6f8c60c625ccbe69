// Checkpoints as files in one directory; each is written completely, then renamed into place.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <danling/checkpoint/manager.hpp>
#include <danling/checkpoint/options.hpp>

namespace danling::inline v0 {

/// Saves into `<directory>/<name>.pth`:
/// - `latest`: the newest state. `previous`: the `latest` before it. From the second save on, two different files with
///   valid checkpoints exist at any time, whatever other names link to them.
/// - `best`: the state at the best score; saved when the score improves, also between intervals.
/// - `ckpt-e000012`, `ckpt-s000000012000`: history, retained by the options' rules. Old ones are removed only after the
///   new one was read back and its checksums verified.
/// - `model`: the model alone, at the last step.
/// `best` and history are additional names (hard links) of the file of `latest`, or copies if links are not possible. A
/// state is written once. The model may change as soon as save_checkpoint returns.
///
/// A best or history state that could not be written is copied, and written with the next save or in wait() and
/// close(). A removed directory is recreated; take_warning() reports it. The counters in checkpoints, not file times,
/// decide which is newer.
///
/// Asynchronous saves: one is written while at most one other waits, so memory is bounded by two copies of the state,
/// plus one copy of a state that could not be written. A newer save replaces a waiting save that only updates `latest`.
/// History, best, forced and last saves are never dropped: the next save blocks until they begin. Failures are counted,
/// and thrown by throw_failure(), wait() and close().
///
/// A lock on the directory holds from the first save to close(); the system releases it when the process ends.
class FileCheckpointManager : public CheckpointManager {
 public:
  using StateFunction = std::function<State()>;

  /// `full_state` returns the state that a run needs to resume, `model_state` the state for `pretrained` (`model` and,
  /// with EMA, `ema`). Accesses no file. @throws ConfigError without a directory, for an unknown export_dtype or
  /// async_mode, or a negative number
  FileCheckpointManager(CheckpointOptions options, StateFunction full_state, StateFunction model_state);
  /// Waits for saves in progress, unless an earlier wait() timed out.
  ~FileCheckpointManager() override;

  /// @throws StateError when another manager or process saves into the directory, or after close(); ConfigError for a
  /// name that is not a file name, or is `previous` or `ckpt-...`
  bool save_checkpoint(const CheckpointRequest& request) override;
  void save_model_checkpoint(const std::string& name = "model") override;
  /// Waits for pending saves first. Loading a file of this directory discards best and history states that could not be
  /// written, since the run goes back to an earlier state.
  State load_checkpoint(const std::filesystem::path& path) override;
  std::optional<ValidCheckpoint> load_newest_valid() override;
  /// The newest valid checkpoint that `filter` accepts.
  std::optional<ValidCheckpoint> load_newest_valid(const CheckpointFilter& filter);
  std::optional<ValidCheckpoint> load_newest_valid_from(const std::filesystem::path& directory,
                                                        const CheckpointFilter& filter) override;
  std::optional<std::filesystem::path> find_final_model(const std::filesystem::path& directory) override;
  bool is_latest(const std::filesystem::path& checkpoint) const override;
  std::vector<std::string> adopt(const std::filesystem::path& directory, const CheckpointHistory& history) override;
  std::optional<BestCheckpoint> best_checkpoint() const override;
  std::optional<State> load_best() override;
  std::optional<std::string> republish_best(std::int64_t index, std::vector<std::string>& problems) override;
  bool wait(std::optional<double> timeout = std::nullopt) override;
  bool maybe_wait_for_staging(std::optional<double> timeout = std::nullopt) override;
  bool close(std::optional<double> timeout = std::nullopt) override;

  const CheckpointOptions& options() const;
  /// `<directory>/<name>.pth`
  std::filesystem::path path_of(const std::string& name) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Returns `state` with its floating-point tensors converted to `dtype`; shared tensors stay shared. Other tensors,
/// such as counters, do not change (DanLing 0.4.8 casts them too, and loses them).
/// @throws ConfigError that lists the names
State export_state(const State& state, const std::string& dtype);

}  // namespace danling::inline v0
