// Checkpoints as tagged directories with pointers to them, as DanLing's DeepSpeedRunner writes them.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <danling/checkpoint/file_manager.hpp>

namespace danling::inline v0 {

/// How the state of a tag is kept in its directory.
struct DeepSpeedStore {
  /// Writes into a new directory, completely. @throws CheckpointError
  std::function<void(const State& state, const std::filesystem::path& directory)> write;
  /// @throws CheckpointError
  std::function<State(const std::filesystem::path& directory)> read;
};

/// `state.pth`, which Python's torch.load opens. Reads the weights of DeepSpeed's own mp_rank_00_model_states.pt where
/// there is no such file.
DeepSpeedStore deepspeed_file_store();

/// Saves each state into `<directory>/<tag>/`, beside `runner.yaml`, the config. A tag is the name of the history
/// (`ckpt-e000012`, `ckpt-s000000012000`), else of the best state (`ckpt-g000000012000`), else the name of the save.
/// Then the pointers are replaced, files with the name of a tag: `latest.pointer` at each save, `best.pointer` at the
/// best score, `<name>.pointer` for a save under another name.
///
/// A directory appears under its tag when it is complete, in place of an earlier one at once; a pointer never names one
/// that is not. History is pruned by the options' rules, but for tags that a pointer names; and a best state's own tag
/// once no pointer names it. `save_model_checkpoint` writes `<name>.pth` as FileCheckpointManager does.
///
/// load_checkpoint() takes a pointer, a directory of checkpoints (its latest), a tagged directory, an alias beside its
/// pointer (`checkpoints/best`), and files of weights. A bare name is looked for in the directory too.
///
/// Options as FileCheckpointManager has them. A best state that could not be written is not kept for a later save.
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
