#include <optim/plan.hpp>

#include <ATen/ops/full.h>

#include <danling/core/error.hpp>

#include <optim/saved_state.hpp>

namespace danling::inline v0::optim::detail {

DeviceScale::DeviceScale(const GradScale& scale, at::Device device) {
  if (scale.scale.defined()) {
    divisor = scale.scale.detach().reshape({}).to(device, at::kDouble, /*non_blocking=*/true).mul(scale.divisor);
  } else if (scale.divisor != 1.0) {
    divisor = at::full({}, scale.divisor, at::TensorOptions().device(device).dtype(at::kDouble));
  }
  if (scale.found_inf.defined()) {
    const at::Tensor flag = scale.found_inf.detach().reshape({});
    found_inf = flag.to(device, flag.scalar_type(), /*non_blocking=*/true).ne(0).to(at::kFloat);
  }
}

at::Tensor DeviceScale::count_increment() const { return found_inf.defined() ? found_inf.neg().add_(1) : at::Tensor(); }

void throw_replaced(std::string_view optimizer, std::size_t group) {
  fail<StateError>(concat(optimizer, ".step"), "expected the parameters of group ", group,
                   " as they were added, got others; use add_param_group, or build a new optimizer");
}

void throw_gradient(std::string_view optimizer, const at::Tensor& param, const at::Tensor& grad,
                    const std::string& what) {
  const std::string where = concat(optimizer, ".step");
  if (grad.layout() != c10::kStrided) {
    fail<StateError>(where, "expected a dense gradient of ", what,
                     ", got a sparse one; make it dense, for instance with Embedding's sparse(false)");
  }
  if (grad.sizes() != param.sizes()) {
    fail<StateError>(where, "expected the gradient of ", what, " with shape ", shape_text(param), ", got ",
                     shape_text(grad));
  }
  fail<StateError>(where, "expected the gradient of ", what, " on ", param.device().str(), ", got ",
                   grad.device().str());
}

void throw_buffer(std::string_view optimizer, const at::Tensor& param, at::ScalarType dtype, const at::Tensor& buffer,
                  const char* key, const std::string& what) {
  fail<StateError>(concat(optimizer, ".step"), "expected ", key, " of ", what, " as ", c10::toString(dtype), " ",
                   shape_text(param), " on ", param.device().str(), ", got ", c10::toString(buffer.scalar_type()), " ",
                   shape_text(buffer), " on ", buffer.device().str(),
                   "; move or convert the model before the first update");
}

}  // namespace danling::inline v0::optim::detail
