// How far the run of a checkpoint was: which of two is newer, whatever the clocks and the copies of the files say.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace danling::inline v0 {

/// In the order in which they grow.
struct CheckpointCounters {
  std::int64_t epoch = 0;  ///< epochs (by steps: rounds over the data) that are done
  std::int64_t global_step = 0;
  std::int64_t micro_step = 0;
  auto operator<=>(const CheckpointCounters&) const = default;
};

/// Reads the list of the values, no tensors. Nothing for a file without them, as that of a model alone.
/// @throws CheckpointError when it cannot be read
std::optional<CheckpointCounters> counters_in(const std::filesystem::path& path);

/// The index of the result that a checkpoint was saved with; nothing for one of before it, of a model alone, or
/// that cannot be read.
std::optional<std::int64_t> result_in(const std::filesystem::path& path);

/// The progress in the name of a history checkpoint: 12 epochs in `ckpt-e000012`, 12,000 steps in
/// `ckpt-s000000012000`.
struct HistoryName {
  bool by_steps = false;
  std::int64_t progress = 0;
};
/// Nothing when `stem` is not such a name.
std::optional<HistoryName> parse_history_name(const std::string& stem);

}  // namespace danling::inline v0
