// The safe part of Python's pickle: plain values, and tensors as torch.save describes them. Never runs code.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <danling/formats/tensor_record.hpp>

namespace danling::inline v0::formats {

/// Maximum nesting of lists, tuples and maps. Deeper data is refused.
inline constexpr std::size_t max_depth = 256;
/// Maximum number of dimensions of a tensor.
inline constexpr std::size_t max_dims = 64;

/// A storage that a pickle refers to.
struct PickledStorage {
  std::string key;         ///< its record is `data/<key>`
  std::uint64_t size = 0;  ///< bytes
};

/// Content of a pickle. `TensorRecord::storage` is an index into `storages`.
struct PickledTree {
  RecordTree tree;
  std::vector<PickledStorage> storages;
};

/// Writes protocol 2 that Python's `torch.load(weights_only=True)` accepts: maps become dicts. Storage `i` gets the key
/// `i` and has `storage_sizes[i]` bytes. Equal trees produce equal bytes.
/// @throws CheckpointError that names the path of a value that Python could not read: text that is not UTF-8, a
/// tensor outside its storage, nesting deeper than `max_depth`.
std::string write_pickle(const RecordTree& tree, std::span<const std::uint64_t> storage_sizes);

/// Reads pickles of torch.save for plain values, state dicts, parameters and DanLing's checkpoints (protocols 2 to 5).
/// OrderedDict, defaultdict, Counter and chanfig's configs become maps (their attributes, such as a module's
/// `_metadata`, are dropped); sets become lists, bytearrays bytes, torch.Size a tuple, torch.device text; arrays and
/// scalars of numpy become the result of their `tolist()`. Anything else, such as a global that is not on the list of
/// src/formats/pickle_globals.cpp, is refused by name. All values together take at most 1 MiB and 256 times the input's
/// size. `source` is added to messages.
/// @throws CheckpointError
PickledTree read_pickle(std::string_view bytes, std::string_view source = "pickle");

/// For bytes that were compressed: values take at most 256 times `stored_size`, the size in the file, whatever the
/// inflated size.
PickledTree read_pickle(std::string_view bytes, std::string_view source, std::uint64_t stored_size);

}  // namespace danling::inline v0::formats
