// TensorFile: a common interface to .pth archives, safetensors files and directories of shards: a tree of values, and
// tensors read in pieces. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/formats/detail/tensor_record.hpp>
#include <danling/formats/safetensors.hpp>

namespace danling_command {

using danling::formats::DType;
using danling::formats::RecordTree;
using danling::formats::TensorRecord;

/// A damaged part of a file.
struct Damage {
  std::string record;  ///< record of a .pth archive, tensor of a safetensors file
  std::string reason;
};

/// A file open for reading; detects its kind by its content. Memory does not grow with the tensors, except for archives
/// that were compressed later, of which it loads one storage at a time. Every error is a danling::CheckpointError with
/// file, record and reason.
class TensorFile {
 public:
  explicit TensorFile(const std::filesystem::path& path);
  ~TensorFile();

  const std::filesystem::path& path() const { return path_; }
  bool is_safetensors() const;
  /// True for a directory of shards of danling or Python.
  bool is_sharded() const;
  /// Returns a text for display, such as `PyTorch archive of danling` or `safetensors file`.
  std::string format() const;
  /// Bytes of the file, or of all files of a directory.
  std::uint64_t size() const { return size_; }

  /// For a directory of shards: names of values that could not be read, with reasons.
  std::vector<std::string> unread() const;

  /// The values. Tied weights, which a safetensors file stores once, share one storage.
  const RecordTree& tree() const;
  /// Metadata of a safetensors file, without the names of tied weights.
  const danling::formats::SafetensorsMetadata& metadata() const { return metadata_; }

  std::size_t num_storages() const;
  std::uint64_t storage_size(std::size_t storage) const;
  /// Fills `out` from byte `offset` of a storage. The first read of a storage verifies all of it. In shards of danling
  /// each block is verified when it is read; shards of Python are not verified.
  void read(std::size_t storage, std::uint64_t offset, std::span<std::byte> out);

  /// The kind of checksums for verify(): `XXH3-128` or `CRC-32`; empty if the file has none.
  std::string checks() const;
  /// True if the file has hashes of danling.
  bool has_hashes() const;
  std::size_t num_records() const;
  /// Reads the whole file and verifies all checksums.
  std::vector<Damage> verify() const;

 private:
  void verify_storage(std::size_t storage) const;

  struct Backing;
  std::filesystem::path path_;
  std::uint64_t size_ = 0;
  danling::formats::SafetensorsMetadata metadata_;
  std::unique_ptr<Backing> backing_;
};

/// Returns true if `path`, or the target of `<path>.pointer`, is a directory of shards, complete or not.
bool is_sharded_path(const std::filesystem::path& path);

/// A value of a tree and its path, such as `optimizer.param_groups[0].lr`.
struct Leaf {
  std::string path;
  const RecordTree* value;
  std::string place;  ///< the path with unique separators, since `a.b` may be one key or two
};

/// Returns all tensors and plain values in order. A list without maps and tensors is one value; so is an empty map.
std::vector<Leaf> leaves_of(const RecordTree& tree);
/// Returns true if a list or tuple contains only plain values and such lists.
bool is_plain_list(const RecordTree& tree);
/// Returns true if `path` equals `prefix` or lies below it; an empty prefix is above every path.
bool is_below(std::string_view path, std::string_view prefix);

/// Returns the number of elements of a tensor, including repeated ones.
std::uint64_t num_elements(const TensorRecord& record);
/// Returns the tensor without repetitions by strides of 0 (`expand`), and the number of repetitions.
std::pair<TensorRecord, std::uint64_t> without_repetitions(const TensorRecord& record);
/// @throws danling::CheckpointError for a view that repeats elements so often that reading it would take days
void check_overlap(const TensorFile& file, const TensorRecord& record, std::string_view key);
/// Returns the strides of a contiguous row-major tensor.
std::vector<std::int64_t> row_major(std::span<const std::int64_t> sizes);
/// Returns true if the tensor is contiguous and row-major.
bool is_row_major(const TensorRecord& record);

/// Resizes `out`. @throws danling::CheckpointError with the file if there is no memory
void resize(std::vector<std::byte>& out, std::uint64_t bytes, const std::filesystem::path& path);

/// Reads the elements of a tensor in row-major order, piece by piece; resolves conjugated and negated views. Keeps a
/// tensor that is stored in another order in memory.
class ElementStream {
 public:
  ElementStream(TensorFile& file, const TensorRecord& record);

  /// Returns the next elements, at most `most`; empty at the end. Valid until the next call.
  std::span<const std::byte> next(std::uint64_t most);

 private:
  void gather(std::span<std::byte> out);

  TensorFile& file_;
  TensorRecord record_;
  std::size_t width_;
  std::uint64_t left_;
  std::uint64_t done_ = 0;
  bool direct_;
  std::vector<std::byte> whole_;
  std::vector<std::int64_t> index_;
  std::vector<std::byte> piece_;
};

}  // namespace danling_command
