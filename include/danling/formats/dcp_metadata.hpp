// The file `.metadata` of a directory of Python's torch.distributed.checkpoint: which boxes of which tensors lie where.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <danling/formats/tensor_record.hpp>

namespace danling::inline v0::formats {

/// The name of the file.
inline constexpr std::string_view dcp_metadata_name = ".metadata";

/// A box of a tensor, in an archive of torch.save of its own: `length` bytes of a file from `offset` on. An entry that
/// is not a tensor has one, without offsets and sizes.
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
  std::vector<Key> path;  ///< the keys: strings of maps, numbers of lists; empty where the metadata does not have them
  bool is_tensor = false;
  DType dtype = DType::float32;
  bool requires_grad = false;
  std::vector<std::int64_t> sizes;  ///< of the whole tensor
  std::vector<DcpChunk> chunks;

  bool operator==(const DcpEntry&) const = default;
};

/// The pickle that `torch.distributed.checkpoint.FileSystemReader` reads. Equal entries produce equal bytes.
std::string write_dcp_metadata(std::span<const DcpEntry> entries);

/// Reads such a pickle without running code: only the classes of PyTorch's metadata are accepted. Checks that boxes lie
/// inside of their tensors and do not overlap, that together they are the whole, and that files lie in the directory.
/// `source` is added to messages. @throws CheckpointError that names class or entry
std::vector<DcpEntry> read_dcp_metadata(std::string_view bytes, std::string_view source);

/// The reason why `chunks` are not the whole tensor of `sizes`, each element once, or an empty string.
[[nodiscard]] std::string check_boxes(std::span<const std::int64_t> sizes, std::span<const DcpChunk> chunks);

}  // namespace danling::inline v0::formats
