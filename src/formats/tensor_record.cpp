#include <danling/formats/detail/tensor_record.hpp>

#include <array>

#include <danling/core/format.hpp>

namespace danling::inline v0::formats {
namespace {

struct Description {
  std::size_t size;
  std::string_view name;
  std::string_view storage_class;
};

// In the order of DType.
constexpr std::array<Description, dtype_count> descriptions = {{
    {8, "float64", "DoubleStorage"},
    {4, "float32", "FloatStorage"},
    {2, "float16", "HalfStorage"},
    {2, "bfloat16", "BFloat16Storage"},
    {1, "float8_e4m3fn", ""},
    {1, "float8_e5m2", ""},
    {1, "float8_e4m3fnuz", ""},
    {1, "float8_e5m2fnuz", ""},
    {1, "float8_e8m0fnu", ""},
    {8, "int64", "LongStorage"},
    {4, "int32", "IntStorage"},
    {2, "int16", "ShortStorage"},
    {1, "int8", "CharStorage"},
    {1, "uint8", "ByteStorage"},
    {2, "uint16", ""},
    {4, "uint32", ""},
    {8, "uint64", ""},
    {1, "bool", "BoolStorage"},
    {4, "complex32", ""},
    {8, "complex64", "ComplexFloatStorage"},
    {16, "complex128", "ComplexDoubleStorage"},
}};

const Description& describe(DType dtype) { return descriptions.at(static_cast<std::size_t>(dtype)); }

bool may_require_grad(DType dtype) { return dtype < DType::int64 || dtype >= DType::complex32; }

}  // namespace

std::size_t dtype_size(DType dtype) { return describe(dtype).size; }
std::string_view dtype_name(DType dtype) { return describe(dtype).name; }
std::string_view dtype_storage_class(DType dtype) { return describe(dtype).storage_class; }

std::string check_view(const TensorRecord& record, std::uint64_t storage_bytes) {
  if (record.sizes.size() != record.strides.size()) {
    return concat("as many strides as sizes, got ", record.strides.size(), " and ", record.sizes.size());
  }
  if (record.requires_grad && !may_require_grad(record.dtype)) {
    return concat("a floating-point or complex dtype for a tensor that requires a gradient, got ",
                  dtype_name(record.dtype));
  }
  if (record.conjugate && record.dtype < DType::complex32) {
    return concat("a complex dtype for a conjugated tensor, got ", dtype_name(record.dtype));
  }
  // Counts of elements have 63 bits, as in LibTorch; an overflow makes the view invalid.
  std::int64_t count = 1;
  std::int64_t last = record.offset;
  bool overflow = record.offset < 0;
  for (std::size_t i = 0; i < record.sizes.size() && !overflow; ++i) {
    const std::int64_t size = record.sizes[i];
    const std::int64_t stride = record.strides[i];
    std::int64_t reach = 0;
    overflow =
        size < 0 || stride < 0 || __builtin_mul_overflow(count, size, &count) ||
        (size > 1 && (__builtin_mul_overflow(size - 1, stride, &reach) || __builtin_add_overflow(last, reach, &last)));
  }
  const auto elements = storage_bytes / dtype_size(record.dtype);
  // A view without elements may have any offset: x[10:, ::2] of ten rows begins behind the storage.
  const bool inside = count == 0 || static_cast<std::uint64_t>(last) < elements;
  if (overflow || !inside) {
    return concat("a view inside its storage of ", elements, " elements, got offset ", record.offset, ", sizes [",
                  join(record.sizes), "] and strides [", join(record.strides), "]");
  }
  return {};
}

}  // namespace danling::inline v0::formats
