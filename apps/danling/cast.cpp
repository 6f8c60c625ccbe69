#include "cast.hpp"

#include <algorithm>
#include <array>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <danling/core/error.hpp>

namespace danling_command {

using danling::formats::DType;

namespace {

struct Name {
  std::string_view name;
  DType dtype;
};

constexpr Name floating_names[] = {
    {"float64", DType::float64},
    {"double", DType::float64},
    {"fp64", DType::float64},
    {"float32", DType::float32},
    {"float", DType::float32},
    {"fp32", DType::float32},
    {"float16", DType::float16},
    {"half", DType::float16},
    {"fp16", DType::float16},
    {"bfloat16", DType::bfloat16},
    {"bf16", DType::bfloat16},
    {"float8_e4m3fn", DType::float8_e4m3fn},
    {"float8_e5m2", DType::float8_e5m2},
    {"float8_e4m3fnuz", DType::float8_e4m3fnuz},
    {"float8_e5m2fnuz", DType::float8_e5m2fnuz},
};

c10::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return c10::ScalarType::Double;
    case DType::float32:
      return c10::ScalarType::Float;
    case DType::float16:
      return c10::ScalarType::Half;
    case DType::bfloat16:
      return c10::ScalarType::BFloat16;
    case DType::float8_e4m3fn:
      return c10::ScalarType::Float8_e4m3fn;
    case DType::float8_e5m2:
      return c10::ScalarType::Float8_e5m2;
    case DType::float8_e4m3fnuz:
      return c10::ScalarType::Float8_e4m3fnuz;
    case DType::float8_e5m2fnuz:
      return c10::ScalarType::Float8_e5m2fnuz;
    case DType::float8_e8m0fnu:
      return c10::ScalarType::Float8_e8m0fnu;
    default:
      danling::detail::fail<danling::StateError>("danling ckpt convert", "expected a floating-point type, got ",
                                                 danling::formats::dtype_name(dtype));
  }
}

}  // namespace

bool is_floating(DType dtype) { return dtype <= DType::float8_e8m0fnu; }

DType floating_dtype(const std::string& name) {
  const auto* found = std::find_if(std::begin(floating_names), std::end(floating_names),
                                   [&](const Name& known) { return known.name == name; });
  if (found == std::end(floating_names)) {
    std::vector<std::string_view> names;
    for (const auto& known : floating_names) {
      names.push_back(known.name);
    }
    danling::detail::fail<danling::ConfigError>("danling ckpt convert", "expected --dtype with one of ",
                                                danling::detail::join(names), ", got ", danling::detail::quote(name));
  }
  return found->dtype;
}

std::span<const std::byte> cast_elements(std::span<const std::byte> elements, DType from, DType to,
                                         std::vector<std::byte>& buffer) {
  // For small pieces one thread is faster than synchronizing several.
  [[maybe_unused]] static const bool one_thread = (at::set_num_threads(1), true);
  const auto count = elements.size() / danling::formats::dtype_size(from);
  buffer.resize(count * danling::formats::dtype_size(to));
  const auto size = static_cast<std::int64_t>(count);
  // from_blob has no overload for const pointers; the memory is only read.
  const at::Tensor source = at::from_blob(const_cast<std::byte*>(elements.data()), {size}, scalar_type(from));
  at::from_blob(buffer.data(), {size}, scalar_type(to)).copy_(source);
  return buffer;
}

}  // namespace danling_command
