// Weights as safetensors files, and weights from whatever file holds them.
#pragma once

#include <filesystem>

#include <danling/formats/safetensors.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Writes a map of tensors as `safetensors.torch.save_model` would: `safetensors.torch.load_file(path)` opens it.
/// Nested maps are flattened, their keys joined by dots. A tensor under several names (tied weights: one view of one
/// storage) is written once, under the name that sorts first; `metadata` gets `dropped name: written name` for the
/// others. Tensors that share a storage in any other way are written one by one, and strided ones in row-major order.
/// `metadata` also gets `format: pt` where it has no `format`. Devices are copied from one tensor at a time (device
/// waits). The file appears whole or not at all.
/// @throws CheckpointError with the key of what cannot be written: integer keys, values that are not tensors, sparse or
/// quantized tensors, complex32 and complex128, two values whose flattened names are the same
void save_safetensors(const State& weights, const std::filesystem::path& path,
                      formats::SafetensorsMetadata metadata = {});

/// Reads a safetensors file: a flat map, in the order of the data, then the further names of tied weights, which are
/// the same tensor again. Tensors are on the CPU and do not depend on the file; each is read straight into its memory.
/// @throws CheckpointError that names file, tensor and reason
State load_safetensors(const std::filesystem::path& path);

/// What load_safetensors or load_file reads, by the file's content, not its name. @throws CheckpointError
State load_weights(const std::filesystem::path& path);

}  // namespace danling::inline v0
