#include <tensors/nested/product.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

namespace danling::inline v0::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ProductPlan : torch::CustomClassHolder {
  Layout a, b, out;
  std::vector<std::int64_t> sizes;  ///< sizes of the result tensor
  std::int64_t batch = 0;
};

at::Tensor multiply(const at::Tensor& a, const at::Tensor& b, const ProductPlan& plan) {
  std::vector<const Structure*> structures;
  for (const Layout* layout : {&plan.a, &plan.b, &plan.out}) {
    if (layout->structure) {
      structures.push_back(&*layout->structure);
    }
  }
  at::Tensor out = at::empty(plan.sizes, a.options());
  const auto work = [&](const Run& run) {
    const auto size = [&](const at::Tensor& tensor, const Layout& layout) {
      const auto rows = layout.structure ? layout.structure->ragged->rows_of(run.first) : 1;
      return static_cast<double>(rows) * static_cast<double>(tensor.numel()) /
             static_cast<double>(std::max<std::int64_t>(tensor.size(0), 1));
    };
    // The geometric mean of the three sizes is (m * k * n)^(2/3).
    const double product = size(a, plan.a) * size(b, plan.b) * size(out, plan.out);
    return static_cast<double>(run.count) * std::sqrt(product);
  };
  each_run_in_parallel(runs_of_equal(plan.batch, structures), a.is_cpu(), work, [&](const Run& run) {
    at::Tensor to = block(out, plan.out, run.first, run.count);
    if (to.numel() == 0) {
      return;
    }
    const at::Tensor left = block_of_matrices(a, plan.a, run.first, run.count);
    const at::Tensor right = block_of_matrices(b, plan.b, run.first, run.count);
    if (to.dim() == 3) {
      at::bmm_out(to, left, right);
    } else {
      to.copy_(at::bmm(left, right).view(to.sizes()));
    }
  });
  return out;
}

struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& a, const at::Tensor& b,
                            const c10::intrusive_ptr<ProductPlan>& plan) {
    context->save_for_backward({a, b});
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return multiply(a, b, *plan);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto plan = c10::static_intrusive_pointer_cast<ProductPlan>(context->saved_data["plan"].toCapsule());
    const auto sizes = [](const at::Tensor& tensor) { return tensor.sizes().vec(); };
    at::Tensor a, b;
    if (context->needs_input_grad(0)) {
      a = product(gradients[0], plan->out, saved[1], plan->b.exchanged(), plan->a, sizes(saved[0]), plan->batch);
    }
    if (context->needs_input_grad(1)) {
      b = product(saved[0], plan->a.exchanged(), gradients[0], plan->out, plan->b, sizes(saved[1]), plan->batch);
    }
    return {a, b, at::Tensor()};
  }
};

}  // namespace

at::Tensor product(const at::Tensor& a, const Layout& a_layout, const at::Tensor& b, const Layout& b_layout,
                   const Layout& out, std::vector<std::int64_t> sizes, std::int64_t batch) {
  auto plan = c10::make_intrusive<ProductPlan>();
  plan->a = a_layout;
  plan->b = b_layout;
  plan->out = out;
  plan->sizes = std::move(sizes);
  plan->batch = batch;
  if (c10::GradMode::is_enabled() && (a.requires_grad() || b.requires_grad())) {
    return Product::apply(a, b, plan);
  }
  return multiply(a, b, *plan);
}

}  // namespace danling::inline v0::detail
