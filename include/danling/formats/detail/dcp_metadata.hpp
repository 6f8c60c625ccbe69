// The file `.metadata` of Python's torch.distributed.checkpoint: the position of each box of each tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <danling/formats/detail/tensor_record.hpp>

namespace danling::inline v0::formats {

/// The name of the file in the directory.
inline constexpr std::string_view dcp_metadata_name = ".metadata";

/// A box of a tensor. Each box has a separate torch.save archive: `length` bytes of a file from `offset` on. An entry
/// that is not a tensor has one chunk without offsets and sizes.
struct DcpChunk {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sizes;
  std::string file;  ///< relative to the directory
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  bool operator==(const DcpChunk&) const = default;
};

/// A tensor, or a pickled value.
struct DcpEntry {
  std::string name;       ///< the keys, joined by dots
  std::vector<Key> path;  ///< the keys: strings for maps, integers for lists; empty if the metadata lacks them
  bool is_tensor = false;
  DType dtype = DType::float32;
  bool requires_grad = false;
  std::vector<std::int64_t> sizes;  ///< of the whole tensor
  std::vector<DcpChunk> chunks;

  bool operator==(const DcpEntry&) const = default;
};

/// Writes the pickle for `torch.distributed.checkpoint.FileSystemReader`. Equal entries produce equal bytes.
std::string write_dcp_metadata(std::span<const DcpEntry> entries);

/// Reads such a pickle without running code: accepts only the classes of PyTorch's metadata. Checks that boxes lie
/// inside their tensors, do not overlap and cover them, and that files lie in the directory. Messages name `source`.
/// @throws CheckpointError, which names the class or entry
std::vector<DcpEntry> read_dcp_metadata(std::string_view bytes, std::string_view source);

/// Returns an empty string if `chunks` cover each element of a tensor of `sizes` exactly once, else the reason.
[[nodiscard]] std::string check_boxes(std::span<const std::int64_t> sizes, std::span<const DcpChunk> chunks);

}  // namespace danling::inline v0::formats
