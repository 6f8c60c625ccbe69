// Checkpoints as directories of shards, to which every rank writes its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <danling/checkpoint/manager.hpp>
#include <danling/checkpoint/options.hpp>
#include <danling/checkpoint/sharded.hpp>
#include <danling/distributed/group.hpp>

namespace danling::inline v0 {

struct ShardedOutcome;

/// Saves each checkpoint into a directory `<name>-g<step>-q<id>` beside the others, in the layout of
/// torch.distributed.checkpoint (see save_sharded). The names `latest`, `previous`, `best`, `ckpt-e000012` and `model`
/// are files `<name>.pointer` with the name of such a directory; they have the meaning that they have for
/// FileCheckpointManager, and so have retention, asynchronous saves and their memory. A directory without names is
/// removed after the next save; one without `manifest.json` was not completed, is reported and never used.
///
/// Every rank calls the functions that are marked *all ranks*, in the same order with the same arguments; each makes a
/// small exchange over the group on the calling thread. The threads that write do not communicate: they meet in the
/// directory, which all ranks must see. Rank 0 completes a save when all have reported; one that fails or does not
/// report within the group's timeout fails the save, and its rank is named.
///
/// A save under way is never dropped. One that waits on all ranks and only renews `latest` is replaced by the next.
/// Unlike with FileCheckpointManager, a best or history state that could not be written is not kept for another try.
class TorchDistributedCheckpointManager : public CheckpointManager {
 public:
  using StateFunction = std::function<ShardedState()>;

  /// `full_state` and `model_state` return the parts of this rank, each called once a save, on all ranks. `wanted`: the
  /// boxes of this rank in checkpoints that are loaded; without it whole tensors. Communicates and touches no file.
  /// @throws ConfigError as FileCheckpointManager
  TorchDistributedCheckpointManager(CheckpointOptions options, Group group, StateFunction full_state,
                                    StateFunction model_state, ShardSelector wanted = {});
  /// Waits for the saves of this rank; rank 0 fails those whose shards do not arrive.
  ~TorchDistributedCheckpointManager() override;

  bool is_collective() const override { return true; }

  /// *All ranks.* @throws CheckpointError on all ranks, also where only one of them failed to make its state or,
  /// without asynchronous saves, to write it; StateError and ConfigError as FileCheckpointManager
  bool save_checkpoint(const CheckpointRequest& request) override;
  /// *All ranks.* With `export_safetensors` rank 0 writes `<name>.safetensors` too, row by row.
  void save_model_checkpoint(const std::string& name = "model") override;

  /// Reads the boxes of this rank from a directory of shards or, whole, from a file. Each rank for itself.
  State load_checkpoint(const std::filesystem::path& path) override;
  /// *All ranks*: a checkpoint that one of them cannot read is skipped by all.
  std::optional<ValidCheckpoint> load_newest_valid() override;
  /// *All ranks.*
  std::optional<ValidCheckpoint> load_newest_valid_from(const std::filesystem::path& directory,
                                                        const CheckpointFilter& filter) override;
  std::optional<std::filesystem::path> find_final_model(const std::filesystem::path& directory) override;
  bool is_latest(const std::filesystem::path& checkpoint) const override;
  /// Rank 0 alone links the files; others return nothing.
  std::vector<std::string> adopt(const std::filesystem::path& directory, const CheckpointHistory& history) override;
  std::optional<BestCheckpoint> best_checkpoint() const override;
  /// *All ranks.*
  std::optional<State> load_best() override;
  /// Rank 0 alone.
  std::optional<std::string> republish_best(std::int64_t index, std::vector<std::string>& problems) override;

  /// *All ranks.* Throws the same failures on all.
  bool wait(std::optional<double> timeout = std::nullopt) override;
  bool maybe_wait_for_staging(std::optional<double> timeout = std::nullopt) override;
  /// *All ranks.*
  bool close(std::optional<double> timeout = std::nullopt) override;

  const CheckpointOptions& options() const;
  /// The directory that `name` stands for, or `<directory>/<name>` without such a name.
  std::filesystem::path path_of(const std::string& name) const;

 private:
  class Impl;
  void record(const ShardedOutcome& outcome, bool thrown);

  std::unique_ptr<Impl> impl_;
};

}  // namespace danling::inline v0
