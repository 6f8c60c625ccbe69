// Datasets of arrays in files: NumPy's .npy and .npz, and safetensors. The first dimension counts records.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <danling/data/batch.hpp>
#include <danling/data/dataset.hpp>

namespace danling::inline v0::data {

struct NamedFile {
  std::string name;
  std::filesystem::path path;
};

struct NpyOptions {
  std::filesystem::path input;
  /// Empty: no target.
  std::filesystem::path target = {};
  /// Batched under their names; dots nest names.
  std::vector<NamedFile> extra = {};
  std::string split = {};
};

/// Memory-maps arrays in .npy files: only the records of a batch are read, so files may be larger than memory. Supports
/// any version, byte order, dimension order and dtype of tensors; batches have the file's dtype. Files in Fortran order
/// need one read per element; save large arrays in C order. Do not truncate a file while it is in use: see
/// `formats::MappedFile`.
/// @throws DataError with the file when one is missing or damaged, or numbers of records differ.
std::shared_ptr<Dataset<Batch>> npy_dataset(const NpyOptions& options);

/// Names of the arrays in a file.
struct ArrayNames {
  std::string input;
  /// Empty: no target.
  std::string target = {};
  /// Batched under their names; dots nest names.
  std::vector<std::string> extra = {};
  std::string split = {};
};

/// Reads and verifies arrays of an .npz file, stored or compressed, into memory.
/// @throws DataError with file and array; lists the existing arrays when one is missing.
std::shared_ptr<Dataset<Batch>> npz_dataset(const std::filesystem::path& path, const ArrayNames& names);

struct SafetensorsOptions {
  /// Reads the tensors into memory instead of mapping them; verifies them if danling wrote the file.
  bool load = false;
};

/// Tensors of a safetensors file. If mapped, reads only the records of a batch and verifies only the header.
/// @throws DataError with file and tensor; lists the existing tensors when one is missing.
std::shared_ptr<Dataset<Batch>> safetensors_dataset(const std::filesystem::path& path, const ArrayNames& names,
                                                    const SafetensorsOptions& options = {});

}  // namespace danling::inline v0::data
