// One state per file, also readable with Python's torch.load.
#pragma once

#include <filesystem>

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Writes `state` to `path` as `torch.save` writes nested dicts: `torch.load(path, weights_only=True)` and `mmap=True`
/// open it. Tensors that share a storage share it after loading too. Atomic: a failure leaves the previous file and no
/// other. Does not create directories. Equal states produce equal bytes. Copies tensors on a device to the host, one
/// storage at a time. Waits for the device. Writes whole storages, even if tensors view only a part.
/// @throws CheckpointError with path and reason, and the key of a value that cannot be written (sparse or quantized
/// tensors, text that is not UTF-8).
void save_file(const State& state, const std::filesystem::path& path);

/// Reads a file of save_file or of Python's `torch.save`. Tensors are on the CPU and do not depend on the file. Accepts
/// only plain values and tensors, names other types in the error, and runs no code. Verifies checksums.
/// @throws CheckpointError that names file, record and reason
State load_file(const std::filesystem::path& path);

/// Reads and verifies every record of the file; keeps no tensors. @throws CheckpointError
void verify_file(const std::filesystem::path& path);

}  // namespace danling::inline v0
