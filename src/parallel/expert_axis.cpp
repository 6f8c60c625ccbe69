#include <parallel/expert_axis.hpp>

#include <algorithm>

#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/custom_function.h>

#include <parallel/held_group.hpp>

namespace danling::inline v0::parallel::expert_axis {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor rows_of_rank(const at::Tensor& rows, const Group& group) {
  const auto [begin, count] = part_of(rows.size(0), group.size(), group.rank());
  return rows.narrow(0, begin, count);
}

at::Tensor reduced(const at::Tensor& values, const Group& group) {
  at::Tensor sum = values.clone(at::MemoryFormat::Contiguous);
  group.all_reduce(sum);
  return sum;
}

struct SplitRows : torch::autograd::Function<SplitRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows, const Group& group) {
    context->saved_data["group"] = detail::hold_group(group);
    return rows_of_rank(rows, group).clone();
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    detail::check_first_derivative("parallel.MixtureOfExperts");
    return {at::cat(detail::held_group(context->saved_data["group"]).all_gather(outputs[0].contiguous())), {}};
  }
};

struct GatherRows : torch::autograd::Function<GatherRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& part, const Group& group) {
    context->saved_data["group"] = detail::hold_group(group);
    return at::cat(group.all_gather(part.contiguous()));
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    return {rows_of_rank(outputs[0], detail::held_group(context->saved_data["group"])), {}};
  }
};

struct SumValues : torch::autograd::Function<SumValues> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& values, const Group& group) {
    return reduced(values, group);
  }
  static variable_list backward(AutogradContext*, variable_list outputs) { return {outputs[0], {}}; }
};

struct SumGradients : torch::autograd::Function<SumGradients> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values, const Group& group) {
    context->saved_data["group"] = detail::hold_group(group);
    return values.view_as(values);
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    detail::check_first_derivative("parallel.MixtureOfExperts");
    return {reduced(outputs[0], detail::held_group(context->saved_data["group"])), {}};
  }
};

}  // namespace

Part part_of(std::int64_t size, std::int64_t parts, std::int64_t rank) {
  const std::int64_t each = (size + parts - 1) / parts, begin = std::min(rank * each, size);
  return {begin, std::min(each, size - begin)};
}

at::Tensor split_rows(const at::Tensor& rows, const Group& group) {
  return group.size() == 1 ? rows : SplitRows::apply(rows, group);
}

at::Tensor gather_rows(const at::Tensor& part, const Group& group) {
  return group.size() == 1 ? part : GatherRows::apply(part, group);
}

at::Tensor sum_values(const at::Tensor& values, const Group& group) {
  return group.size() == 1 ? values : SumValues::apply(values, group);
}

at::Tensor sum_gradients(const at::Tensor& values, const Group& group) {
  return group.size() == 1 ? values : SumGradients::apply(values, group);
}

}  // namespace danling::inline v0::parallel::expert_axis
