// Any value to and from a file, in the format that the file's name says.
#pragma once

#include <concepts>
#include <filesystem>

#include <danling/config/fields.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Reads a file by the extension of its name, in any case:
/// - `.pth`, `.pt`: what torch.save or save() wrote. `.safetensors`: a map of tensors.
/// - `.npy`: a tensor. `.npz`: a map of tensors.
/// - `.json`, `.yaml`, `.yml`: maps, lists, numbers, texts. `NaN` and `Infinity` are allowed; of YAML, plain scalars
/// are
///   null, bools, integers and numbers where they read as such.
/// - `.csv`, `.tsv`: a map of columns, each a tensor (int64, float64 with NaN where a value is missing, bool) or a list
///   of texts. `read_csv` has options.
/// - `.pkl`, `.pickle`: plain values; no code is run.
/// @throws CheckpointError, ConfigError (YAML) or DataError (npy, JSON, CSV) with file and reason; ConfigError that
/// lists the extensions for another one
State load(const std::filesystem::path& file);

/// Writes `object` in the format that `file` names, of the same list: tensors into `.npy`; a map of tensors into
/// `.safetensors` and `.npz`; a map of columns of equal length (tensors of one dimension, or lists) into `.csv` and
/// `.tsv`; anything without tensors into `.json`, `.yaml` and `.pkl`; anything into `.pth`. Folders are made. The file
/// appears whole or not at all. Waits for the device that tensors are on.
/// @return `file`. @throws CheckpointError with the key of what the format does not have; ConfigError as load()
std::filesystem::path save(const State& object, const std::filesystem::path& file);

/// The state of anything that has one.
template <Checkpointable T>
requires(!std::convertible_to<T, State>) std::filesystem::path save(T& object, const std::filesystem::path& file) {
  return save(State(object.state_dict()), file);
}
/// The fields of a config.
std::filesystem::path save(ConstSectionRef config, const std::filesystem::path& file);

}  // namespace danling::inline v0
