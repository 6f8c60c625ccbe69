#include <metrics/kept.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

namespace danling::inline v0::detail {

at::Tensor kept_empty(at::IntArrayRef shape, const at::TensorOptions& options) {
  const c10::InferenceMode normal(false);
  return at::empty(shape, options);
}

at::Tensor copy_outside_inference_mode(const at::Tensor& tensor) {
  const c10::InferenceMode normal(false);
  const c10::NoGradGuard no_grad;  // leaving inference mode enables gradients
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options());
  copy.copy_(tensor);
  return copy;
}

}  // namespace danling::inline v0::detail
