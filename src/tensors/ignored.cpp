#include <tensors/ignored.hpp>

#include <limits>
#include <type_traits>

#include <ATen/ops/ones_like.h>
#include <c10/core/ScalarType.h>

namespace danling::inline v0::detail {
namespace {

template <class T>
bool in_range(std::int64_t value) {
  if constexpr (std::is_unsigned_v<T>) {
    return value >= 0 && static_cast<std::uint64_t>(value) <= std::numeric_limits<T>::max();
  } else {
    return value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
  }
}

template <class T>
bool is_exact(std::int64_t value) {
  return static_cast<double>(static_cast<float>(static_cast<T>(static_cast<float>(value)))) ==
         static_cast<double>(value);
}

bool holds(at::ScalarType type, std::int64_t value) {
  switch (type) {
    case at::kByte:
      return in_range<std::uint8_t>(value);
    case at::kChar:
      return in_range<std::int8_t>(value);
    case at::kShort:
      return in_range<std::int16_t>(value);
    case at::kInt:
      return in_range<std::int32_t>(value);
    case at::kUInt16:
      return in_range<std::uint16_t>(value);
    case at::kUInt32:
      return in_range<std::uint32_t>(value);
    case at::kUInt64:
      return value >= 0;
    case at::kBool:
      return value == 0 || value == 1;
    case at::kHalf:
      return is_exact<c10::Half>(value);
    case at::kBFloat16:
      return is_exact<c10::BFloat16>(value);
    case at::kFloat:
      return is_exact<float>(value);
    default:
      return true;
  }
}

}  // namespace

at::Tensor not_ignored(const at::Tensor& labels, std::int64_t ignore_index) {
  return holds(labels.scalar_type(), ignore_index) ? labels.ne(ignore_index) : at::ones_like(labels, at::kBool);
}

}  // namespace danling::inline v0::detail
