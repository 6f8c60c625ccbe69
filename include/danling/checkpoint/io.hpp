// Loads and saves any value, in the format of the file's extension.
#pragma once

#include <concepts>
#include <filesystem>

#include <danling/config/fields.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Reads a file in the format of its extension, in upper or lower case:
/// - `.pth`, `.pt`, `.ckpt`: a file of torch.save or save(). `.safetensors`: a map of tensors.
/// - `.npy`: a tensor. `.npz`: a map of tensors.
/// - `.json`, `.yaml`, `.yml`: maps, lists, numbers, texts. `NaN` and `Infinity` are allowed; plain YAML scalars become
///   null, bools, integers or numbers if they parse as such.
/// - `.csv`, `.tsv`: a map of columns, each a tensor (int64, float64 with NaN where a value is missing, bool) or a list
///   of texts. `read_csv` has options.
/// - `.pkl`, `.pickle`: plain values; no code runs.
/// @throws CheckpointError, ConfigError (YAML) or DataError (npy, JSON, CSV) with file and reason; ConfigError that
/// lists the extensions for an unknown one
State load(const std::filesystem::path& file);

/// Writes `object` in the format of the extension of `file`, as listed for load(): tensors into `.npy`; a map of
/// tensors into `.safetensors` and `.npz`; a map of columns of equal length (tensors of one dimension, or lists) into
/// `.csv` and `.tsv`; values without tensors into `.json`, `.yaml` and `.pkl`; any value into `.pth`. Creates
/// directories. Atomic. Waits for the tensors' device.
/// @return `file`. @throws CheckpointError with the key of a value that the format cannot hold; ConfigError as load()
std::filesystem::path save(const State& object, const std::filesystem::path& file);

/// Saves the state of any object with a `state_dict`.
template <Checkpointable T>
  requires(!std::convertible_to<T, State>)
std::filesystem::path save(T& object, const std::filesystem::path& file) {
  return save(State(object.state_dict()), file);
}
/// Saves the fields of a config, such as a RunnerConfig. @return `file`
std::filesystem::path save(ConstSectionRef config, const std::filesystem::path& file);

}  // namespace danling::inline v0
