// Progress of a checkpoint's run: decides which of two is newer, independent of clocks and copies.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <danling/formats/detail/tensor_record.hpp>

namespace danling::inline v0 {

/// Counters, compared in this order.
struct CheckpointCounters {
  std::int64_t epoch = 0;  ///< completed epochs (by steps: passes over the data)
  std::int64_t global_step = 0;
  std::int64_t micro_step = 0;
  auto operator<=>(const CheckpointCounters&) const = default;
};

/// Reads only the values, no tensors. Empty for a file without counters, such as a model alone.
/// @throws CheckpointError when it cannot be read
std::optional<CheckpointCounters> counters_in(const std::filesystem::path& path);

/// The index of the result that a checkpoint was saved with; empty for older checkpoints, a model alone, and unreadable
/// files.
std::optional<std::int64_t> result_in(const std::filesystem::path& path);

/// The score that a checkpoint was saved with; empty for other or unreadable files.
std::optional<double> score_in(const std::filesystem::path& path);

/// The same for a tree.
std::optional<CheckpointCounters> counters_of(const formats::RecordTree& tree);
std::optional<std::int64_t> result_of(const formats::RecordTree& tree);

/// The progress in a history name: 12 epochs in `ckpt-e000012`, 12,000 steps in `ckpt-s000000012000`.
struct HistoryName {
  bool by_steps = false;
  std::int64_t progress = 0;
};
/// Empty if `stem` is not a history name.
std::optional<HistoryName> parse_history_name(const std::string& stem);

}  // namespace danling::inline v0
