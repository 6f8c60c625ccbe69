// Safetensors files: a JSON header, then named dense tensors. Python's safetensors reads ours, and we read Python's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <danling/formats/detail/checksum.hpp>
#include <danling/formats/detail/tensor_record.hpp>
#include <danling/formats/file.hpp>

namespace danling::inline v0::formats {

/// Maximum header size in bytes; the limit of Python's safetensors.
inline constexpr std::uint64_t max_safetensors_header = 100'000'000;

/// One tensor of a file: contiguous row-major elements.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> sizes;
  std::uint64_t offset = 0;  ///< position of the first byte in the file; set by the reader
  std::uint64_t bytes = 0;   ///< set by the reader

  bool operator==(const SafetensorsEntry&) const = default;
};

/// The header's `__metadata__`.
using SafetensorsMetadata = std::map<std::string, std::string>;

/// Returns the format's name of an element type, such as `BF16`; empty for complex32 and complex128, which the format
/// lacks.
std::string_view safetensors_dtype(DType dtype);

/// Passes all bytes of tensor number `tensor` to `sink`, in pieces of any size.
using TensorSource = std::function<void(std::size_t tensor, const PieceSink& sink)>;

/// The metadata key of danling's hashes. Its value is a version, the XXH3-128 of the header without the hashes, and the
/// XXH3-128 of each tensor in the order of the data, in hexadecimal digits separated by spaces.
inline constexpr std::string_view safetensors_hashes_key = "danling.xxh3";

/// Writes `entries` in the order of Python's safetensors (element types from wide to narrow, then names), so every
/// tensor starts at a multiple of its element size. Calls `source` once per tensor, in that order, with the index in
/// `entries`. Adds the hashes to the metadata. Equal input produces equal bytes, which equal Python's except for the
/// hashes.
/// @throws CheckpointError for a name that is repeated, `__metadata__` or not UTF-8, for an unsupported element type,
/// and if `source` passes another number of bytes than the shape requires
void write_safetensors(AtomicFile& out, std::span<const SafetensorsEntry> entries, const SafetensorsMetadata& metadata,
                       const TensorSource& source);

/// Returns true if the file begins like a safetensors file. @throws CheckpointError if it cannot be read
bool is_safetensors(const std::filesystem::path& path);

/// A file open for reading. The constructor reads the header. It refuses tensors that overlap, leave gaps or do not
/// match their shape, repeated names, and unknown parts of the header. Every error is a CheckpointError with file,
/// tensor and reason. The file size bounds allocations.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  /// The tensors in the order of the data.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  /// The entry called `name`, or null.
  const SafetensorsEntry* find(std::string_view name) const;
  /// The metadata without danling's hashes.
  const SafetensorsMetadata& metadata() const { return metadata_; }
  /// True if the file has danling's hashes. Without them only the header can be verified.
  bool has_hashes() const { return !hashes_.empty(); }
  /// Maps other names of tied weights to the tensors that they refer to, from the metadata of save_safetensors and
  /// Python's `save_model`.
  SafetensorsMetadata aliases() const;

  /// Fills `out`, which has the tensor's size, and verifies it if has_hashes(). `entry` is one of `entries()`, not a
  /// copy.
  void read(const SafetensorsEntry& entry, std::span<std::byte> out) const;
  /// Fills one destination per entry of `entries()`, each of the entry's size, and verifies them, on all cores.
  void read_all(std::span<const std::span<std::byte>> out) const;
  /// Fills `out` from byte `offset` of the tensor, without verification.
  void read(const SafetensorsEntry& entry, std::uint64_t offset, std::span<std::byte> out) const;
  /// Reads and verifies one of `entries()`, not a copy.
  void verify(const SafetensorsEntry& entry) const;
  /// Reads and verifies all tensors, on all cores.
  void verify() const;

 private:
  void take_hashes();
  void check_hash(const SafetensorsEntry& entry, const Hash128& got) const;

  InputFile file_;
  std::vector<SafetensorsEntry> entries_;
  SafetensorsMetadata metadata_;
  std::vector<Hash128> hashes_;  // one per entry, or none
  std::unordered_map<std::string_view, std::size_t> index_;
};

}  // namespace danling::inline v0::formats
