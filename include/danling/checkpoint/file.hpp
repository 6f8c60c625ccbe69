// One state, one file that Python's torch.load opens too.
#pragma once

#include <filesystem>

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Writes `state` to `path` as `torch.save` would write nested dicts: `torch.load(path, weights_only=True)` and
/// `mmap=True` open it. Tensors that share a storage still share it after loading. The file appears whole or not at
/// all; on failure nothing is left and what was at `path` stays. Equal states give equal bytes.
/// Tensors on a device are copied to the host, one storage at a time (device waits); storages are written whole, also
/// where tensors view only a part.
/// @throws CheckpointError with path and reason; the value's key where a value cannot be written (sparse or quantized
/// tensors, text that is not UTF-8).
void save_file(const State& state, const std::filesystem::path& path);

/// Reads what save_file or Python's `torch.save` wrote. Tensors are on the CPU and do not depend on the file.
/// Only plain values and tensors are read; anything else is refused by name and no code is run. Checksums are
/// verified. @throws CheckpointError that names file, record and reason
State load_file(const std::filesystem::path& path);

/// Reads and verifies every record of the file without keeping tensors. @throws CheckpointError
void verify_file(const std::filesystem::path& path);

}  // namespace danling::inline v0
