// DeepSpeedCheckpointManager: checkpoints as tagged directories with pointer files, in the layout of DanLing's
// DeepSpeedRunner.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <danling/checkpoint/file_manager.hpp>

namespace danling::inline v0 {

/// Writes and reads the state in the directory of a tag.
struct DeepSpeedStore {
  /// Writes the whole state into a new directory. @throws CheckpointError
  std::function<void(const State& state, const std::filesystem::path& directory)> write;
  /// @throws CheckpointError
  std::function<State(const std::filesystem::path& directory)> read;
};

/// Stores `state.pth`, which Python's torch.load opens. If there is none, it reads only the weights from DeepSpeed's
/// mp_rank_00_model_states.pt.
DeepSpeedStore deepspeed_file_store();

/// Saves each state into `<directory>/<tag>/`, with the config as `runner.yaml` next to it. A tag is the name in the
/// history (`ckpt-e000012`, `ckpt-s000000012000`), or else that of the best state (`ckpt-g000000012000`), or else the
/// name of the save. Then replaces the pointers, which are files that contain a tag: `latest.pointer` at each save,
/// `best.pointer` at a new best score, `<name>.pointer` for a save under another name.
///
/// A complete directory replaces the earlier one of its tag atomically; a pointer never names an incomplete one. The
/// options' rules prune the history, except tags that a pointer names. A best state's `ckpt-g` tag is removed once no
/// pointer names it. `save_model_checkpoint` writes `<name>.pth` as FileCheckpointManager does.
///
/// load_checkpoint() takes a pointer, a directory of checkpoints (loads its latest), a tagged directory, an alias
/// without the suffix of its pointer (`checkpoints/best`), or a file of weights. It also looks for a bare name in the
/// directory.
///
/// Options as in FileCheckpointManager. A best state whose write failed is not kept for a later save.
class DeepSpeedCheckpointManager final : public FileCheckpointManager {
 public:
  /// @param runner_yaml  the text of runner.yaml
  DeepSpeedCheckpointManager(CheckpointOptions options, StateFunction full_state, StateFunction model_state,
                             std::function<std::string()> runner_yaml, DeepSpeedStore store = deepspeed_file_store());
  ~DeepSpeedCheckpointManager() override;

  bool save_checkpoint(const CheckpointRequest& request) override;
  State load_checkpoint(const std::filesystem::path& path) override;
  std::optional<ValidCheckpoint> load_newest_valid() override;
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

 private:
  class Tags;
  std::unique_ptr<Tags> tags_;
};

}  // namespace danling::inline v0
