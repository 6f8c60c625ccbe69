// Checkpoints as files in one directory, each written completely before it is renamed into place.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <danling/checkpoint/manager.hpp>
#include <danling/checkpoint/options.hpp>

namespace danling::inline v0 {

/// Saves into `<directory>/<name>.pth`:
/// - `latest`: the newest state. `previous`: the `latest` before it, so that from the second save on two valid
///   checkpoints exist in different files at every moment, whatever other names link to them.
/// - `best`: as `latest` at the best score; saved when the score improves, also off the interval.
/// - `ckpt-e000012`, `ckpt-s000000012000`: history, retained by the options' rules. Old ones are removed only after the
///   new
///   one was read back and its checksums verified.
/// - `model`: the model alone, at the last step.
/// `best` and history are further names (hard links) of the file of `latest`, or copies where links are not possible.
/// A state is written once. The model may change as soon as save_checkpoint returns.
///
/// A best or history state that could not be written is copied and written with the next save, or in wait() and
/// close(). A removed directory is recreated; take_warning() reports it. The counters in checkpoints decide which of
/// two is newer.
///
/// Asynchronous saves: one is written while at most one more waits, so memory is bounded by two copies of the state,
/// plus one of a state that could not be written. A newer save replaces a waiting one that only updates `latest`.
/// History, best, forced and last saves are never dropped: the next save then blocks until its turn. Failures are
/// counted and thrown by throw_failure(), wait(), close().
///
/// The directory is locked from the first save to close(), by a lock that is released when the process ends.
class FileCheckpointManager : public CheckpointManager {
 public:
  using StateFunction = std::function<State()>;

  /// `full_state` returns the state that a run needs to resume, `model_state` the one for `pretrained` (`model` and,
  /// with EMA, `ema`). Touches no file. @throws ConfigError for an unknown export_dtype or async_mode, or a negative
  /// number
  FileCheckpointManager(CheckpointOptions options, StateFunction full_state, StateFunction model_state);
  /// Waits for saves in progress, unless an earlier wait() timed out.
  ~FileCheckpointManager() override;

  /// @throws StateError when another manager or process saves into the directory, or after close(); ConfigError for a
  /// name that is no file name, `previous` or `ckpt-...`
  bool save_checkpoint(const CheckpointRequest& request) override;
  void save_model_checkpoint(const std::string& name = "model") override;
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

/// `state` with its floating-point tensors converted to `dtype`; shared tensors stay shared. Other tensors, such as
/// counters, stay unchanged (DanLing 0.4.8 casts them too, and loses them).
/// @throws ConfigError that lists the names
State export_state(const State& state, const std::string& dtype);

}  // namespace danling::inline v0
