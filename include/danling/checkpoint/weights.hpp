// Weights in safetensors files, and in files of any supported format.
#pragma once

#include <filesystem>

#include <danling/formats/safetensors.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Writes a map of tensors as `safetensors.torch.save_model` would: `safetensors.torch.load_file(path)` opens it.
/// Nested maps are flattened, their keys joined by dots. A tensor under several names (tied weights: one view of one
/// storage) is written once, under the name that sorts first; `metadata` gets `dropped name: written name` for the
/// others. Tensors that share a storage in any other way are written one by one, and strided ones in row-major order.
/// `metadata` also gets `format: pt` unless it has a `format`. Copies one tensor at a time from a device (device
/// waits). Atomic.
/// @throws CheckpointError with the key of a value that cannot be written: integer keys, values that are not tensors,
/// sparse or quantized tensors, complex32 and complex128, two values whose flattened names are the same
void save_safetensors(const State& weights, const std::filesystem::path& path,
                      formats::SafetensorsMetadata metadata = {});

/// Reads a safetensors file: a flat map, in the order of the data, then the other names of tied weights, which share
/// the tensor. Tensors are on the CPU and do not depend on the file; each is read straight into its memory.
/// @throws CheckpointError that names file, tensor and reason
State load_safetensors(const std::filesystem::path& path);

/// Reads with load_safetensors or load_file, by the file's content, not its name. Also takes Hugging Face's layout: an
/// index of shards (`model.safetensors.index.json`, `pytorch_model.bin.index.json`), whose shards are next to it, and a
/// directory with one of these, `model.safetensors` or `pytorch_model.bin`; and directories of shards (load_sharded).
/// @throws CheckpointError, also for a shard that is missing, and for a key that is not in exactly the shard that the
/// index names
State load_weights(const std::filesystem::path& path);

}  // namespace danling::inline v0
