#include <tensors/dtypes.hpp>

#include <array>

namespace danling::inline v0 {
namespace {

// In the order of formats::DType.
constexpr std::array<c10::ScalarType, formats::dtype_count> file_types = {
    c10::ScalarType::Double,
    c10::ScalarType::Float,
    c10::ScalarType::Half,
    c10::ScalarType::BFloat16,
    c10::ScalarType::Float8_e4m3fn,
    c10::ScalarType::Float8_e5m2,
    c10::ScalarType::Float8_e4m3fnuz,
    c10::ScalarType::Float8_e5m2fnuz,
    c10::ScalarType::Float8_e8m0fnu,
    c10::ScalarType::Long,
    c10::ScalarType::Int,
    c10::ScalarType::Short,
    c10::ScalarType::Char,
    c10::ScalarType::Byte,
    c10::ScalarType::UInt16,
    c10::ScalarType::UInt32,
    c10::ScalarType::UInt64,
    c10::ScalarType::Bool,
    c10::ScalarType::ComplexHalf,
    c10::ScalarType::ComplexFloat,
    c10::ScalarType::ComplexDouble,
};

}  // namespace

std::optional<formats::DType> to_file_dtype(c10::ScalarType type) {
  for (std::size_t i = 0; i < file_types.size(); ++i) {
    if (file_types[i] == type) {
      return static_cast<formats::DType>(i);
    }
  }
  return std::nullopt;
}

c10::ScalarType to_scalar_type(formats::DType dtype) { return file_types.at(static_cast<std::size_t>(dtype)); }

}  // namespace danling::inline v0
