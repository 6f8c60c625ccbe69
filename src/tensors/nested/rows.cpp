#include <tensors/nested/rows.hpp>

#include <algorithm>

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tensors/raw.hpp>

namespace danling::inline v0::detail {
namespace {

/// The gradient of index_select in LibTorch accumulates; that of a permutation need not.
struct PermuteRows : torch::autograd::Function<PermuteRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& values,
                            const at::Tensor& order, const at::Tensor& inverse) {
    context->saved_data["order"] = order;
    context->saved_data["inverse"] = inverse;
    return values.index_select(0, order);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {PermuteRows::apply(gradients[0], context->saved_data["inverse"].toTensor(),
                               context->saved_data["order"].toTensor()),
            at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor row_index(const std::vector<std::int64_t>& rows, at::Device device) {
  const at::Tensor host = at::empty({static_cast<std::int64_t>(rows.size())}, at::kLong);
  std::copy(rows.begin(), rows.end(), host.mutable_data_ptr<std::int64_t>());
  return tensors::moved(host, device);
}

at::Tensor take_rows(const at::Tensor& values, const std::vector<std::int64_t>& rows) {
  return values.index_select(0, row_index(rows, values.device()));
}

at::Tensor permute_rows(const at::Tensor& values, const std::vector<std::int64_t>& rows) {
  const at::Tensor order = row_index(rows, values.device());
  if (!c10::GradMode::is_enabled() || !values.requires_grad()) {
    return values.index_select(0, order);
  }
  std::vector<std::int64_t> inverse(rows.size());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    inverse[static_cast<std::size_t>(rows[row])] = static_cast<std::int64_t>(row);
  }
  return PermuteRows::apply(values, order, row_index(inverse, values.device()));
}

}  // namespace danling::inline v0::detail
