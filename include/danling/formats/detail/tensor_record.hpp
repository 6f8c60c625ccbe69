// TensorRecord: describes a tensor in a file by element type, storage and shape, without LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <danling/core/tree.hpp>

namespace danling::inline v0::formats {

/// Element types of checkpoints.
enum class DType : std::uint8_t {
  float64,
  float32,
  float16,
  bfloat16,
  float8_e4m3fn,
  float8_e5m2,
  float8_e4m3fnuz,
  float8_e5m2fnuz,
  float8_e8m0fnu,
  int64,
  int32,
  int16,
  int8,
  uint8,
  uint16,
  uint32,
  uint64,
  boolean,
  complex32,
  complex64,
  complex128,
};

inline constexpr std::size_t dtype_count = static_cast<std::size_t>(DType::complex128) + 1;

/// Returns the bytes per element.
std::size_t dtype_size(DType dtype);
/// Returns PyTorch's name, such as `float32` or `bool`.
std::string_view dtype_name(DType dtype);
/// Returns PyTorch's class of typed storages, such as `FloatStorage`; empty for newer types, which have none.
std::string_view dtype_storage_class(DType dtype);

/// A strided view of one storage. Offset, sizes and strides count elements.
struct TensorRecord {
  DType dtype = DType::float32;
  std::size_t storage = 0;  ///< number of the storage within its archive
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  bool requires_grad = false;
  bool conjugate = false;  ///< the elements are the conjugates of the stored ones
  bool negative = false;   ///< the elements are the negatives of the stored ones

  bool operator==(const TensorRecord&) const = default;
};

/// A state whose tensors are records.
using RecordTree = Tree<TensorRecord>;

/// Returns an empty string if `record` is a valid view of a storage of `storage_bytes` bytes, else the reason.
[[nodiscard]] std::string check_view(const TensorRecord& record, std::uint64_t storage_bytes);

}  // namespace danling::inline v0::formats
