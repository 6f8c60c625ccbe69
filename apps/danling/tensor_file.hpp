// One view of .pth archives, safetensors files and directories of shards: a tree of values, tensors read in pieces. No
// LibTorch.
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

#include <danling/formats/safetensors.hpp>
#include <danling/formats/tensor_record.hpp>

namespace danling_command {

using danling::formats::DType;
using danling::formats::RecordTree;
using danling::formats::TensorRecord;

/// A damaged part of a file, with the reason.
struct Damage {
  std::string record;  ///< record of a .pth archive, tensor of a safetensors file
  std::string reason;
};

/// A file open for reading, its kind found by its content. Memory does not grow with its tensors, except for archives
/// compressed later, which are read one storage at a time.
/// Every error is a danling::CheckpointError that names file, record and reason.
class TensorFile {
 public:
  explicit TensorFile(const std::filesystem::path& path);
  ~TensorFile();

  const std::filesystem::path& path() const { return path_; }
  bool is_safetensors() const;
  /// A directory of shards, danling's or Python's.
  bool is_sharded() const;
  /// Display text: `PyTorch archive of danling`, `safetensors file`.
  std::string format() const;
  /// Bytes of the file, or of all files of a directory.
  std::uint64_t size() const { return size_; }

  /// Of a directory of shards: why values could not be read, by name.
  std::vector<std::string> unread() const;

  /// The values. Tied weights of a safetensors file, which it holds once, are tensors of one storage.
  const RecordTree& tree() const;
  /// Of a safetensors file, without the names of tied weights.
  const danling::formats::SafetensorsMetadata& metadata() const { return metadata_; }

  std::size_t num_storages() const;
  std::uint64_t storage_size(std::size_t storage) const;
  /// Fills `out` from byte `offset` of a storage; the first read of a storage verifies all of it. Of danling's shards
  /// each block is verified as it is read, Python's are not.
  void read(std::size_t storage, std::uint64_t offset, std::span<std::byte> out);

  /// Kind of checksums for verify(): `XXH3-128` or `CRC-32`; empty when the file has none.
  std::string checks() const;
  /// Whether the file holds hashes that danling wrote.
  bool has_hashes() const;
  std::size_t num_records() const;
  /// Reads everything and verifies every checksum there is.
  std::vector<Damage> verify() const;

 private:
  void verify_storage(std::size_t storage) const;

  struct Backing;
  std::filesystem::path path_;
  std::uint64_t size_ = 0;
  danling::formats::SafetensorsMetadata metadata_;
  std::unique_ptr<Backing> backing_;
};

/// Whether `path`, or what a file `<path>.pointer` names, is a directory of shards, complete or not.
bool is_sharded_path(const std::filesystem::path& path);

/// A value of a tree with its place, such as `optimizer.param_groups[0].lr`.
struct Leaf {
  std::string path;
  const RecordTree* value;
  std::string place;  ///< the path, with marks between its parts: `a.b` may be one key or two
};

/// All tensors and plain values in order. A list without maps and tensors in it is one value, and so is an empty map.
std::vector<Leaf> leaves_of(const RecordTree& tree);
/// Whether a list or tuple holds nothing but plain values and such lists.
bool is_plain_list(const RecordTree& tree);
/// Whether `path` is `prefix` or lies below it; an empty prefix is above everything.
bool is_below(std::string_view path, std::string_view prefix);

/// Elements of a tensor, also where the tensor's strides skip or repeat some.
std::uint64_t num_elements(const TensorRecord& record);
/// A tensor in which each repetition that a stride of 0 makes (`expand`) stands once, and how many there are.
std::pair<TensorRecord, std::uint64_t> without_repetitions(const TensorRecord& record);
/// @throws danling::CheckpointError for a view that repeats the elements of its storage too often to be read in a day
void check_overlap(const TensorFile& file, const TensorRecord& record, std::string_view key);
/// The strides of a tensor without gaps in row-major order.
std::vector<std::int64_t> row_major(std::span<const std::int64_t> sizes);
/// Whether the tensor's elements lie one after another as its storage has them.
bool is_row_major(const TensorRecord& record);

/// Resizes `out`. @throws danling::CheckpointError that names the file when there is no memory
void resize(std::vector<std::byte>& out, std::uint64_t bytes, const std::filesystem::path& path);

/// Reads the elements of a tensor in row-major order, piece by piece, with conjugated and negated views resolved. A
/// tensor that is stored in another order stays in memory as long as this object lives.
class ElementStream {
 public:
  ElementStream(TensorFile& file, const TensorRecord& record);

  /// The next elements, at most `most` of them; empty at the end. Valid until the next call.
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
