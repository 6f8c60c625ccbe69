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
  // Tensors made in inference mode could not be changed outside of it.
  const c10::InferenceMode normal(false);
  // LibTorch subtracts no bool. Its kernels do not round products with `n`, which the rest could then not make up for:
  // those of a float64 are rounded first, as on the host.
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

// Divides by a tensor on the device: by a number on the host, CUDA's kernels multiply with its reciprocal.
at::Tensor divided(const at::Tensor& sum, std::int64_t n) {
  return sum.is_cpu() ? sum.div(n) : sum.div(at::full({}, n, sum.options()));
}

at::Tensor whole_sum(const at::Tensor& sum, const at::Tensor& rest) {
  // A rest that is nan counts as 0. By kernels that exist for tensors without data too.
  const at::Tensor zero = at::zeros({}, rest.options());
  return sum + (at::fmax(rest, zero) + at::fmin(rest, zero));
}

}  // namespace danling::inline v0::detail
