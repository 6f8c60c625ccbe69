#include <optim/rounding.hpp>

#include <ATen/ops/arange.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>

namespace danling::inline v0::optim::detail {
namespace {

constexpr std::int64_t mask = 0xFFFFFFFF;

}  // namespace

void mark_changed(const at::Tensor& tensor) {
  // Those of InferenceMode have none. In debug builds is_inference() refuses the keys of sliced parameters.
  if (tensor.unsafeGetTensorImpl()->version_counter().enabled()) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

std::uint32_t rounding_key(double count, std::uint32_t number) {
  const auto update = static_cast<std::uint64_t>(count);
  return (static_cast<std::uint32_t>(update * 0x9E3779B1U) ^ ((number + 1) * 0x85EBCA77U)) | 1U;
}

at::Tensor rounding_key(const at::Tensor& count, std::uint32_t number) {
  const std::int64_t own = static_cast<std::uint32_t>((number + 1) * 0x85EBCA77U);
  return count.to(at::kLong).mul(0x9E3779B1).bitwise_and(mask).bitwise_xor(own).bitwise_or(1);
}

at::Tensor widened(const at::Tensor& tensor) {
  const at::Tensor real = tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor;
  return c10::elementSize(real.scalar_type()) == 2 ? real.to(at::kFloat) : real;
}

at::Tensor rounded_stochastically(const at::Tensor& given, const at::Tensor& key) {
  const at::Tensor wide = given.to(at::kFloat);  // a scalar computed from a float64 count is float64
  const auto index = at::arange(wide.numel(), at::TensorOptions().device(wide.device()).dtype(at::kLong));
  // The kernels number elements in memory order.
  const at::Tensor number =
      wide.is_non_overlapping_and_dense() ? index.as_strided(wide.sizes(), wide.strides()) : index.view(wide.sizes());
  const auto times = [&](const at::Tensor& x, std::int64_t factor) {
    // The low 32 bits of a 32-bit product, without a 64-bit overflow.
    const at::Tensor high = x.bitwise_right_shift(16).mul(factor).bitwise_and(0xFFFF).mul(0x10000);
    return x.bitwise_and(0xFFFF).mul(factor).add(high).bitwise_and(mask);
  };
  at::Tensor x = times(number, 0x9E3779B9).bitwise_xor(key);
  x = x.bitwise_xor(x.bitwise_right_shift(16));
  x = times(x, 0x85EBCA6B);
  x = x.bitwise_xor(x.bitwise_right_shift(13));
  x = times(x, 0xC2B2AE35);
  x = x.bitwise_xor(x.bitwise_right_shift(16));
  const at::Tensor bits = wide.view(at::kInt).to(at::kLong).bitwise_and(mask);
  const at::Tensor up = bits.add(x.bitwise_and(0xFFFF)).bitwise_and(0xFFFF0000).to(at::kInt).view(at::kFloat);
  return at::where(wide.isfinite(), up, wide).to(at::kBFloat16);
}

}  // namespace danling::inline v0::optim::detail
