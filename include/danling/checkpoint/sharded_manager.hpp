// Checkpoints as directories of shards, one shard per rank.
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

/// Saves each checkpoint into a separate directory `<name>-g<step>-q<id>`, in the layout of
/// torch.distributed.checkpoint (see save_sharded). The names `latest`, `previous`, `best`, `ckpt-e000012` and `model`
/// are files `<name>.pointer` with the name of such a directory. Names, retention, asynchronous saves and their memory
/// are as in FileCheckpointManager. A directory without a name is removed after the next save; a directory without
/// `manifest.json` is incomplete: it is reported and never used.
///
/// Every rank must call the functions marked *all ranks*, in the same order with the same arguments; each makes a small
/// exchange over the group on the calling thread. The writing threads do not communicate: they meet in the directory,
/// which all ranks must see. Rank 0 completes a save when all ranks have reported. A rank that fails, or does not
/// report within the group's timeout, fails the save and is named in the error.
///
/// A save that has begun is never dropped. A save that waits on all ranks and only updates `latest` is replaced by the
/// next. Unlike FileCheckpointManager, it does not retry a best or history state that could not be written.
class TorchDistributedCheckpointManager : public CheckpointManager {
 public:
  using StateFunction = std::function<ShardedState()>;

  /// `full_state` and `model_state` return the parts of this rank; each is called once per save, on all ranks.
  /// `wanted`: the boxes that this rank loads; without it, whole tensors. The constructor neither communicates nor
  /// accesses a file.
  /// @throws ConfigError as FileCheckpointManager
  TorchDistributedCheckpointManager(CheckpointOptions options, Group group, StateFunction full_state,
                                    StateFunction model_state, ShardSelector wanted = {});
  /// Waits for the saves of this rank; rank 0 fails saves whose shards do not arrive.
  ~TorchDistributedCheckpointManager() override;

  bool is_collective() const override { return true; }

  /// *All ranks*. @throws CheckpointError on all ranks, even if only one failed to create its state or,
  /// without asynchronous saves, to write it; StateError and ConfigError as FileCheckpointManager
  bool save_checkpoint(const CheckpointRequest& request) override;
  /// *All ranks*. With `export_safetensors` rank 0 writes `<name>.safetensors` too, row by row.
  void save_model_checkpoint(const std::string& name = "model") override;

  /// Reads the boxes of this rank from a directory of shards, or a whole file. Not collective.
  State load_checkpoint(const std::filesystem::path& path) override;
  /// *All ranks.* All skip a checkpoint that one rank cannot read.
  std::optional<ValidCheckpoint> load_newest_valid() override;
  /// *All ranks*.
  std::optional<ValidCheckpoint> load_newest_valid_from(const std::filesystem::path& directory,
                                                        const CheckpointFilter& filter) override;
  std::optional<std::filesystem::path> find_final_model(const std::filesystem::path& directory) override;
  bool is_latest(const std::filesystem::path& checkpoint) const override;
  /// Only rank 0 links the files; other ranks return nothing.
  std::vector<std::string> adopt(const std::filesystem::path& directory, const CheckpointHistory& history) override;
  std::optional<BestCheckpoint> best_checkpoint() const override;
  /// *All ranks*.
  std::optional<State> load_best() override;
  /// Rank 0 only.
  std::optional<std::string> republish_best(std::int64_t index, std::vector<std::string>& problems) override;

  /// *All ranks*. Throws the same failures on all.
  bool wait(std::optional<double> timeout = std::nullopt) override;
  bool maybe_wait_for_staging(std::optional<double> timeout = std::nullopt) override;
  /// *All ranks*.
  bool close(std::optional<double> timeout = std::nullopt) override;

  const CheckpointOptions& options() const;
  /// The directory that `name` points to, or `<directory>/<name>` without such a pointer.
  std::filesystem::path path_of(const std::string& name) const;

 private:
  class Impl;
  void record(const ShardedOutcome& outcome, bool thrown);

  std::unique_ptr<Impl> impl_;
};

}  // namespace danling::inline v0
