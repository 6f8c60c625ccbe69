// The safe subset of Python's pickle: plain values, and tensors as torch.save describes them. Never runs code.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <danling/formats/detail/tensor_record.hpp>

namespace danling::inline v0::formats {

/// Maximum nesting of lists, tuples and maps; deeper data is refused.
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

/// Writes a pickle of protocol 2 that Python's `torch.load(weights_only=True)` accepts; maps become dicts. Storage `i`
/// gets the key `i` and has `storage_sizes[i]` bytes. Equal trees produce equal bytes.
/// @throws CheckpointError with the path of a value that Python could not read: text that is not UTF-8, a tensor
/// outside its storage, nesting deeper than `max_depth`
std::string write_pickle(const RecordTree& tree, std::span<const std::uint64_t> storage_sizes);

/// Reads pickles of torch.save: plain values, state dicts, parameters and DanLing's checkpoints (protocols 2 to 5).
/// OrderedDict, defaultdict, Counter and chanfig's configs become maps without their attributes (such as a module's
/// `_metadata`); sets become lists, bytearrays bytes, torch.Size a tuple, torch.device text; arrays and scalars of
/// NumPy become the result of their `tolist()`. Refuses anything else, such as a global that is not listed in
/// src/formats/pickle_globals.cpp. All values together may take at most 1 MiB plus 256 times the input's size. Messages
/// name `source`.
/// @throws CheckpointError
PickledTree read_pickle(std::string_view bytes, std::string_view source = "pickle");

/// For input that was compressed: the limit depends on `stored_size`, the size in the file, not on the inflated size.
PickledTree read_pickle(std::string_view bytes, std::string_view source, std::uint64_t stored_size);

}  // namespace danling::inline v0::formats
