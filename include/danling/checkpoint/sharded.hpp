// States whose tensors are split over several processes, in directories that torch.distributed.checkpoint also reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <c10/util/ArrayRef.h>

#include <danling/distributed/group.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Position of this process's box in the whole tensor, for a save. The tensor has the sizes of its box; it may have no
/// elements. (TensorShard also has the sizes of the part; ShardBox is a box to read.)
struct ShardPlace {
  std::vector<std::int64_t> sizes;    ///< sizes of the whole tensor, the same on all processes
  std::vector<std::int64_t> offsets;  ///< index of this process's first element in the whole tensor

  bool operator==(const ShardPlace&) const = default;
};

/// The state of one process among several.
struct ShardedState {
  /// Maps are merged over the processes: a map may have keys that others lack. If processes have different values under
  /// one key, the value of the lowest rank is saved (lists and tuples count as values, tensors inside them do not).
  /// State of a single process belongs under a key that contains its rank.
  State state;
  /// By path: keys and list positions joined by dots (`optimizer.state.0.exp_avg`). A tensor without a place is a whole
  /// tensor, the same on all processes that have it.
  std::map<std::string, ShardPlace> places = {};
};

/// The box of a tensor that a process reads from a checkpoint; the whole tensor if both are empty.
struct ShardBox {
  std::vector<std::int64_t> offsets = {};
  std::vector<std::int64_t> sizes = {};
};

/// Returns the box of a tensor that this process needs, by path and whole sizes; empty to skip the tensor.
using ShardSelector = std::function<std::optional<ShardBox>(const std::string& path, at::IntArrayRef sizes)>;

/// Writes a directory in the layout of Python's torch.distributed.checkpoint, which `dcp.load` and `dcp_to_torch_save`
/// read. Each rank writes its boxes into `__<rank>_0.distcp`; a box on several ranks is written by one of them, so that
/// all write about the same amount. Rank 0 adds the values, `.metadata`, and last `manifest.json` with the hashes of
/// all files. Every rank of `group` must call it, with a directory that all see; waits for devices and the disk. The
/// directory must not contain a checkpoint.
/// @throws CheckpointError on all ranks, naming the failed rank; also for tensors whose boxes leave gaps or overlap
void save_sharded(const ShardedState& state, const std::filesystem::path& directory, const Group& group = {});

/// Reads such a directory, or one of Python: the values, and of each tensor the box that `wanted` returns (without
/// `wanted`: everything). Reads only the bytes of the boxes, in blocks of 128 KiB, and verifies them. Tensors are on
/// the CPU. Runs no code. Not collective. `directory` may be a name that a `.pointer` file next to it resolves.
/// @throws CheckpointError that names file or entry; also for an incomplete save, and for values of unknown classes
State load_sharded(const std::filesystem::path& directory, const ShardSelector& wanted = {});

/// Returns the directory that `<checkpoint>.pointer` names (DanLing's files `latest.pointer` etc.), else `checkpoint`.
std::filesystem::path resolve_sharded(const std::filesystem::path& checkpoint);
/// Returns whether `checkpoint`, once resolved, is a directory of shards (DanLing's is_checkpoint_path).
bool is_sharded(const std::filesystem::path& checkpoint);

}  // namespace danling::inline v0
