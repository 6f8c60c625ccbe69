// NumPy's .npy format: a header that describes one array, and its elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <danling/formats/tensor_record.hpp>

namespace danling::inline v0::formats {

/// What the header of a .npy file says. (NumPy: numpy.lib.format, versions 1.0, 2.0 and 3.0.)
struct NpyArray {
  DType dtype = DType::float32;
  std::vector<std::int64_t> sizes;
  /// The first index runs fastest; otherwise the last does.
  bool fortran_order = false;
  /// The elements are in the byte order that this machine does not have.
  bool swapped = false;
  /// Of the first element in the content; not aligned to anything.
  std::uint64_t offset = 0;
  /// Of all elements.
  std::uint64_t bytes = 0;
};

/// Reads the header of `content`, a whole .npy file or member of an .npz file; takes no memory but for the sizes.
/// `source` names it in messages, such as `file 'x.npy'`.
/// @throws DataError when it is not .npy, is damaged, holds less or more than the array that it describes, or elements
/// that tensors do not have (objects, structures, texts, dates, long doubles).
NpyArray parse_npy(std::span<const std::byte> content, std::string_view source);

/// Whether NumPy has these elements.
bool has_npy(DType dtype);

/// The header of a .npy file of version 1.0, before its elements, which follow in little-endian order, the last index
/// running fastest. As NumPy writes it, of a multiple of 64 bytes. `dtype` must be one that NumPy has.
std::string npy_header(DType dtype, std::span<const std::int64_t> sizes);

}  // namespace danling::inline v0::formats
