// Softmax over the last dimension of elements that are ragged there: attention scores, row by row.
#include <tensors/nested/scores.hpp>

#include <utility>

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

namespace danling::inline v0::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SoftmaxPlan : torch::CustomClassHolder {
  Layout layout;
  std::int64_t dim = 0;  ///< dimension in a block: that of the element plus one
  bool logarithm = false;
};

/// Calls `function(block of the result, run)` for each run; copies non-contiguous blocks back.
template <class Function>
at::Tensor map_blocks(const at::Tensor& like, const SoftmaxPlan& plan, const Function& function) {
  at::Tensor out = at::empty(like.sizes(), like.options());
  const Structure& structure = *plan.layout.structure;
  const auto work = [&](const Run& run) {
    return 32.0 * static_cast<double>(run.count * structure.ragged->rows_of(run.first));
  };
  each_run_in_parallel(runs_of_equal(structure.batch(), {&structure}), like.is_cpu(), work, [&](const Run& run) {
    at::Tensor to = block(out, plan.layout, run.first, run.count);
    if (to.numel() == 0) {
      return;
    }
    if (to.is_contiguous()) {
      function(to, run);
    } else {
      at::Tensor own = at::empty(to.sizes(), to.options());
      function(own, run);
      to.copy_(own);
    }
  });
  return out;
}

at::Tensor softmax_forward(const at::Tensor& values, const SoftmaxPlan& plan) {
  return map_blocks(values, plan, [&](at::Tensor& to, const Run& run) {
    const at::Tensor from = block(values, plan.layout, run.first, run.count);
    plan.logarithm ? at::_log_softmax_out(to, from, plan.dim, false) : at::_softmax_out(to, from, plan.dim, false);
  });
}

at::Tensor softmax_backward(const at::Tensor& gradient, const at::Tensor& result, const SoftmaxPlan& plan) {
  return map_blocks(result, plan, [&](at::Tensor& to, const Run& run) {
    const at::Tensor from = block(gradient, plan.layout, run.first, run.count);
    const at::Tensor of = block(result, plan.layout, run.first, run.count);
    plan.logarithm ? at::_log_softmax_backward_data_out(to, from, of, plan.dim, of.scalar_type())
                   : at::_softmax_backward_data_out(to, from, of, plan.dim, of.scalar_type());
  });
}

/// Composed of differentiable operators, for gradients of gradients.
at::Tensor softmax_backward_differentiable(const at::Tensor& gradient, const at::Tensor& result,
                                           const SoftmaxPlan& plan) {
  const Structure& structure = *plan.layout.structure;
  const std::vector<std::int64_t> rows = [&] {
    std::vector<std::int64_t> out;
    for (std::int64_t element = 0; element < structure.batch(); ++element) {
      out.push_back(structure.ragged->rows_of(element));
    }
    return out;
  }();
  const auto gradients = gradient.split_with_sizes(rows), results = result.split_with_sizes(rows);
  std::vector<at::Tensor> parts;
  for (std::size_t element = 0; element < rows.size(); ++element) {
    // View of a part: ragged dimensions before static ones, as in the values.
    const auto own = structure.ragged->sizes(static_cast<std::int64_t>(element));
    c10::DimVector sizes(own.begin(), own.end());
    sizes.insert(sizes.end(), result.sizes().begin() + 1, result.sizes().end());
    const auto dim = static_cast<std::int64_t>(structure.ragged_index(plan.dim - 1));
    const at::Tensor from = gradients[element].reshape(sizes), of = results[element].reshape(sizes);
    const at::Tensor part = plan.logarithm ? at::_log_softmax_backward_data(from, of, dim, of.scalar_type())
                                           : at::_softmax_backward_data(from, of, dim, of.scalar_type());
    parts.push_back(part.reshape(results[element].sizes()));
  }
  return parts.empty() ? at::empty_like(result) : at::cat(parts);
}

struct BlockSoftmax : torch::autograd::Function<BlockSoftmax> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values,
                            const c10::intrusive_ptr<SoftmaxPlan>& plan) {
    at::Tensor out = softmax_forward(values, *plan);
    context->save_for_backward({out});
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto plan = c10::static_intrusive_pointer_cast<SoftmaxPlan>(context->saved_data["plan"].toCapsule());
    const at::Tensor result = context->get_saved_variables().at(0);
    return {c10::GradMode::is_enabled() ? softmax_backward_differentiable(gradients[0], result, *plan)
                                        : softmax_backward(gradients[0], result, *plan),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor softmax_in_blocks(const at::Tensor& values, const Structure& structure, std::int64_t element_dim,
                             bool logarithm) {
  auto plan = c10::make_intrusive<SoftmaxPlan>();
  plan->layout.structure = structure;
  plan->dim = element_dim + 1;
  plan->logarithm = logarithm;
  return c10::GradMode::is_enabled() && values.requires_grad() ? BlockSoftmax::apply(values, plan)
                                                               : softmax_forward(values, *plan);
}

}  // namespace danling::inline v0::detail
