// Progress of a checkpoint's run: decides which of two is newer, independent of clocks and copies.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <danling/formats/tensor_record.hpp>

namespace danling::inline v0 {

/// Counters in the order in which they grow.
struct CheckpointCounters {
  std::int64_t epoch = 0;  ///< completed epochs (by steps: passes over the data)
  std::int64_t global_step = 0;
  std::int64_t micro_step = 0;
  auto operator<=>(const CheckpointCounters&) const = default;
};

/// Reads the list of the values, no tensors. Nothing for a file without them, such as a model alone.
/// @throws CheckpointError when it cannot be read
std::optional<CheckpointCounters> counters_in(const std::filesystem::path& path);

/// The index of the result that a checkpoint was saved with; nothing for older checkpoints, a model alone, or
/// unreadable files.
std::optional<std::int64_t> result_in(const std::filesystem::path& path);

/// The same of a tree.
std::optional<CheckpointCounters> counters_of(const formats::RecordTree& tree);
std::optional<std::int64_t> result_of(const formats::RecordTree& tree);

/// The progress in the name of a history checkpoint: 12 epochs in `ckpt-e000012`, 12,000 steps in
/// `ckpt-s000000012000`.
struct HistoryName {
  bool by_steps = false;
  std::int64_t progress = 0;
};
/// Nothing when `stem` is not such a name.
std::optional<HistoryName> parse_history_name(const std::string& stem);

}  // namespace danling::inline v0
