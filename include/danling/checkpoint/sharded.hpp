// States whose tensors lie in parts on several processes, in directories that torch.distributed.checkpoint reads too.
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

/// Where a tensor of this process lies in the whole one. The tensor's own sizes are those of its box; it may have no
/// elements.
struct ShardPlace {
  std::vector<std::int64_t> sizes;    ///< of the whole tensor, alike on all processes
  std::vector<std::int64_t> offsets;  ///< of this process's first element in it

  bool operator==(const ShardPlace&) const = default;
};

/// The state of one process among several.
struct ShardedState {
  /// Maps are joined over the processes: one may have keys that others lack. Where processes have different values
  /// under one key (lists and tuples count as values, tensors in them do not), the lowest rank's is saved; state of a
  /// process alone belongs under a key with its rank.
  State state;
  /// By path: keys and positions in lists, joined by dots (`optimizer.state.0.exp_avg`). A tensor without a place is
  /// the whole one, and the same on all processes that have it.
  std::map<std::string, ShardPlace> places = {};
};

/// A box of a tensor; the whole tensor if both are empty.
struct ShardBox {
  std::vector<std::int64_t> offsets = {};
  std::vector<std::int64_t> sizes = {};
};

/// The box of a tensor that this process needs, by path and sizes of the whole; nothing to leave the tensor out.
using ShardSelector = std::function<std::optional<ShardBox>(const std::string& path, at::IntArrayRef sizes)>;

/// Writes a directory in the layout of Python's torch.distributed.checkpoint, which `dcp.load` and
/// `dcp_to_torch_save` read: each rank its own boxes into `__<rank>_0.distcp`; a box that several ranks have is written
/// by one of them, so that all write about equally much. Rank 0 adds the values, `.metadata`, and at last
/// `manifest.json` with the hashes of all. Called by all ranks of `group`, which see the same directory; waits for
/// devices and the disk. The directory must have no checkpoint.
/// @throws CheckpointError on all ranks, naming the rank at fault; and for tensors of which boxes are missing or
/// overlap
void save_sharded(const ShardedState& state, const std::filesystem::path& directory, const Group& group = {});

/// Reads such a directory, or one of Python's: values, and of each tensor the box that `wanted` returns (without it:
/// everything). Reads the bytes of the boxes alone, in blocks of 128 KiB, which are verified. Tensors are on the CPU.
/// Runs no code. Each process calls it for itself. `directory` may be a name that a `.pointer` file beside it
/// resolves.
/// @throws CheckpointError that names file or entry; for a save that was not completed, and for values of unknown
/// classes
State load_sharded(const std::filesystem::path& directory, const ShardSelector& wanted = {});

/// The directory that `<checkpoint>.pointer` names (DanLing's files `latest.pointer` and the like), else `checkpoint`.
std::filesystem::path resolve_sharded(const std::filesystem::path& checkpoint);
/// Whether `checkpoint`, resolved, is a directory of shards. (DanLing: is_checkpoint_path)
bool is_sharded(const std::filesystem::path& checkpoint);

}  // namespace danling::inline v0
