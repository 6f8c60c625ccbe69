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
  /// None when empty.
  std::filesystem::path target = {};
  /// Batched under their names; dots nest them.
  std::vector<NamedFile> extra = {};
  std::string split = {};
};

/// Arrays in .npy files, mapped: only the records of a batch are read, so the files may be larger than memory. Any
/// version, byte order and order of dimensions, any element type that tensors have; batches have the file's dtype.
/// Files in Fortran order are read at one place per element; save large arrays in C order.
/// A file must not be made shorter while it is in use: see `formats::MappedFile`.
/// @throws DataError that names the file when one is missing or damaged, or when numbers of records differ.
std::shared_ptr<Dataset<Batch>> npy_dataset(const NpyOptions& options);

/// Names of the arrays that make the batches.
struct ArrayNames {
  std::string input;
  /// None when empty.
  std::string target = {};
  /// Batched under their names; dots nest them.
  std::vector<std::string> extra = {};
  std::string split = {};
};

/// Arrays of an .npz file, stored or compressed. The named ones are read into memory and verified.
/// @throws DataError that names file and array, and lists the existing arrays when one is missing.
std::shared_ptr<Dataset<Batch>> npz_dataset(const std::filesystem::path& path, const ArrayNames& names);

struct SafetensorsOptions {
  /// Read the named tensors into memory, and verify them where danling wrote the file, in place of mapping it.
  bool load = false;
};

/// Tensors of a safetensors file. Mapped, only the records of a batch are read and nothing but the header is verified.
/// @throws DataError that names file and tensor, and lists the existing tensors when one is missing.
std::shared_ptr<Dataset<Batch>> safetensors_dataset(const std::filesystem::path& path, const ArrayNames& names,
                                                    const SafetensorsOptions& options = {});

}  // namespace danling::inline v0::data
