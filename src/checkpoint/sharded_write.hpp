// Files of one sharded checkpoint: those of each rank, and those that complete it.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <danling/formats/detail/dcp_manifest.hpp>
#include <danling/formats/detail/dcp_metadata.hpp>
#include <danling/formats/detail/tensor_record.hpp>

#include <checkpoint/sharded_plan.hpp>

namespace danling::inline v0 {

/// The files of a rank, and the tensors of its state.
struct ShardReport {
  std::optional<formats::DcpManifest::File> file;
  std::vector<formats::DcpEntry> entries;  ///< boxes that the rank wrote
  formats::RecordTree values;
  std::vector<std::pair<std::string, std::vector<Key>>> tensors;  ///< all tensors of its state, with their keys
};

/// The items that this rank writes, with tensors in host memory or on a device, and its whole plan.
struct ShardWork {
  std::vector<ShardItem> items;
  formats::RecordTree values;
  std::vector<std::pair<std::string, std::vector<Key>>> tensors;
};

/// The part of `plan` at `positions`, without the tensors of other items.
ShardWork work_of(SavePlan plan, const std::vector<std::size_t>& positions);

/// Writes `__<rank>_0.distcp`, if the rank has items; with `verify`, reads it back. Waits for devices and the disk.
/// @throws CheckpointError
ShardReport write_shard(const std::filesystem::path& directory, int rank, const ShardWork& work, bool verify);

/// Writes the report, or the reason for its absence, into the directory for rank 0. @throws CheckpointError
void leave_report(const std::filesystem::path& directory, int rank, const ShardReport& report);
void leave_failure(const std::filesystem::path& directory, int rank, const std::string& error) noexcept;
/// Removes the reports of a save that was killed.
void remove_reports(const std::filesystem::path& directory, int world_size);
/// Waits for the reports of the other ranks. Polls `gives_up`, which returns a reason to stop, or nothing.
/// @throws CheckpointError that names the rank at fault
std::vector<ShardReport> await_reports(const std::filesystem::path& directory, int world_size,
                                       const std::function<std::string()>& gives_up, std::chrono::milliseconds timeout);

/// Fields of a manifest that the state does not provide.
struct ShardNotes {
  std::optional<double> score = std::nullopt;
};
/// Writes the values, the metadata and the manifest; removes the reports. @throws CheckpointError
formats::DcpManifest complete_checkpoint(const std::filesystem::path& directory, std::vector<ShardReport> reports,
                                         const ShardNotes& notes);

}  // namespace danling::inline v0
