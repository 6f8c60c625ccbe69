// NumPy's .npy format: a header that describes one array, then its elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <danling/formats/detail/tensor_record.hpp>

namespace danling::inline v0::formats {

/// Header of a .npy file. (NumPy: numpy.lib.format, versions 1.0, 2.0 and 3.0.)
struct NpyArray {
  DType dtype = DType::float32;
  std::vector<std::int64_t> sizes;
  /// Column-major (the first index varies fastest); otherwise row-major.
  bool fortran_order = false;
  /// The byte order differs from this machine's.
  bool swapped = false;
  /// Offset of the first element in the content; not aligned.
  std::uint64_t offset = 0;
  /// Size of all elements.
  std::uint64_t bytes = 0;
};

/// Reads the header of `content`, a whole .npy file or member of an .npz file; allocates only the sizes. `source` names
/// it in messages, such as `file 'x.npy'`.
/// @throws DataError if it is not .npy, is damaged, is shorter or longer than its array, or has elements that tensors
/// do not support (objects, structures, texts, dates, long doubles)
NpyArray parse_npy(std::span<const std::byte> content, std::string_view source);

/// Returns true if NumPy has this element type.
bool has_npy(DType dtype);

/// Returns the header of a .npy file of version 1.0. The caller appends the elements, little-endian and row-major. The
/// size is a multiple of 64 bytes, as in NumPy. `dtype` must be one that NumPy has.
std::string npy_header(DType dtype, std::span<const std::int64_t> sizes);

}  // namespace danling::inline v0::formats
