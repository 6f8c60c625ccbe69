// Checkpoints as files in one directory, each written whole before it takes its name.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <danling/checkpoint/manager.hpp>

namespace danling::inline v0 {

/// What a FileCheckpointManager takes from the config's `checkpoint` section.
struct CheckpointOptions {
  std::filesystem::path directory;
  std::int64_t interval = 0;          ///< epochs or steps between saves; 0: none by interval
  std::int64_t keep_latest_k = 0;     ///< history checkpoints to keep; 0: all
  bool load_only = false;             ///< save nothing
  bool last_save_model_only = false;  ///< the last step saves the model instead of the whole state
  /// Floating-point type of saved models: float32, float16, bfloat16, float64 or an alias (fp32, half, bf16, double
  /// ...).
  std::optional<std::string> export_dtype = std::nullopt;
};

/// Saves synchronously into `<directory>/<name>.pth`:
/// - `latest`: the newest state. `previous`: the one that `latest` was before, so that from the second save on there
/// are
///   two sound checkpoints in different files, at every moment, whatever else is a link to them.
/// - `best`: as `latest` at the best score; saved when the score improves, also off the interval.
/// - `ckpt-e000012`, `ckpt-s000000012000`: history, kept by `keep_latest_k`.
/// - `model`: the model alone, at the last step.
/// `best` and history are further names (hard links) of the file of `latest`, or copies where links are not possible.
/// A state is written once. The next save may change the model as soon as save_checkpoint returns.
class FileCheckpointManager : public CheckpointManager {
 public:
  using StateFunction = std::function<State()>;

  /// `full_state` gives what a run needs to go on, `model_state` what `pretrained` needs (`model` and, with EMA,
  /// `ema`). Touches no file. @throws ConfigError for an unknown export_dtype or a negative keep_latest_k
  FileCheckpointManager(CheckpointOptions options, StateFunction full_state, StateFunction model_state);
  ~FileCheckpointManager() override;

  void save_checkpoint(const CheckpointRequest& request) override;
  void save_model_checkpoint(const std::string& name = "model") override;
  State load_checkpoint(const std::filesystem::path& path) override;
  std::optional<SoundCheckpoint> newest_sound() override;
  bool close(std::optional<double> timeout = std::nullopt) override;

  const CheckpointOptions& options() const;
  /// `<directory>/<name>.pth`
  std::filesystem::path path_of(const std::string& name) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// `state` with its floating-point tensors in the type that `dtype` names; tensors that were the same stay the same.
/// Other tensors, such as counters, stay as they are (DanLing 0.4.8 casts them too, and loses them).
/// @throws ConfigError that lists the names
State export_state(const State& state, const std::string& dtype);

}  // namespace danling::inline v0
