#include <metrics/compensated.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/fmax.h>
#include <ATen/ops/fmin.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

namespace danling::inline v0::detail {
namespace {

bool is_plain_double(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kDouble && tensor.is_contiguous();
}

}  // namespace

void add_compensated(at::Tensor& sum, at::Tensor& rest, const at::Tensor& addend, std::int64_t n) {
  if (is_plain_double(sum) && is_plain_double(addend)) {
    double* const sums = sum.mutable_data_ptr<double>();
    double* const rests = rest.mutable_data_ptr<double>();
    const double* const addends = addend.const_data_ptr<double>();
    const auto times = static_cast<double>(n);
    for (std::int64_t i = 0; i < sum.numel(); ++i) {
      add_compensated(sums[i], rests[i], addends[i] * times);
    }
    return;
  }
  // Inference tensors could not be changed outside inference mode.
  const c10::InferenceMode normal(false);
  // LibTorch cannot subtract bools. Its kernels do not round products with `n`, an error that the rest cannot correct:
  // products of float64 are rounded first, as on the host.
  at::Tensor more = addend.scalar_type() == at::kBool ? addend.to(sum.scalar_type()) : addend;
  if (n != 1 && more.scalar_type() == at::kDouble) {
    more = more.mul(n);
    n = 1;
  }
  const at::Tensor total = at::add(sum, more, n);
  const at::Tensor rounded = total - sum;
  const at::Tensor lost = (total - rounded).sub_(sum);
  rest = (rest - lost).sub_(at::sub(rounded, more, n));
  sum = total;
}

// Divides by a tensor on the device: for a number on the host, CUDA kernels multiply by its reciprocal.
at::Tensor divided(const at::Tensor& sum, std::int64_t n) {
  return sum.is_cpu() ? sum.div(n) : sum.div(at::full({}, n, sum.options()));
}

at::Tensor whole_sum(const at::Tensor& sum, const at::Tensor& rest) {
  // A nan rest counts as 0. Uses only kernels that also exist for tensors without data.
  const at::Tensor zero = at::zeros({}, rest.options());
  return sum + (at::fmax(rest, zero) + at::fmin(rest, zero));
}

}  // namespace danling::inline v0::detail
