// Options of a checkpoint manager, declared once for programs and the config's section `checkpoint`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace danling::inline v0 {

struct CheckpointOptions {
  std::filesystem::path directory = {};
  std::optional<std::int64_t> interval = std::nullopt;  ///< epochs or steps between saves; 0 or unset: no regular saves
  // A history checkpoint is kept if one of these rules applies; the newest always. Without rules, all are kept.
  std::int64_t keep_latest_k = 0;     ///< number of newest checkpoints to keep
  std::int64_t keep_best_k = 0;       ///< number of checkpoints with the best scores to keep. Not in DanLing
  double keep_every_hours = 0.0;      ///< keeps the first in each period of this many hours. Not in DanLing
  bool load_only = false;             ///< save nothing
  bool last_save_model_only = false;  ///< the last step saves the model instead of the whole state
  /// Floating-point dtype of saved models: float32, float16, bfloat16, float64 or an alias (fp32, half, bf16, double
  /// ...).
  std::optional<std::string> export_dtype = std::nullopt;
  /// Also writes the weights of each `model.pth` to `model.safetensors`, of an EMA to `model-ema.safetensors`, and of
  /// several models to `model-<name>.safetensors`. Weights that the format cannot store (sparse, complex128) are only
  /// in the `.pth`. Not in DanLing
  bool export_safetensors = false;
  /// Selects when a save returns. `disabled`: when it is on disk. `async`: when the state is copied to host memory.
  /// `async_with_pinned_mem`: copies to pinned memory, and training does not wait for a copy from a device either.
  /// Unset: by async_enabled.
  std::optional<std::string> async_mode = std::nullopt;
  bool async_enabled = false;
  /// A file, if it exists, to sync before a checkpoint is published: the log whose lines the checkpoint counts.
  std::filesystem::path sync_first = {};
};

}  // namespace danling::inline v0
