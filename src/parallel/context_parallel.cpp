#include <danling/parallel/context_parallel.hpp>

#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/csrc/autograd/custom_function.h>

#include <danling/core/error.hpp>

#include <parallel/held_group.hpp>

namespace danling::inline v0::parallel {
namespace {

std::int64_t count_parts(const Group& group, bool balanced) { return group.size() * (balanced ? 2 : 1); }

std::int64_t part_length(std::int64_t length, const Group& group, bool balanced, std::string_view where) {
  const std::int64_t parts = count_parts(group, balanced), padding = context_padding(length, group, balanced);
  check<DataError>(padding == 0, where, "expected sequences that divide into ", parts, " parts",
                   balanced ? " (2 x " : "", balanced ? concat(group.size(), " ranks)") : std::string(), ", got ",
                   length, " tokens: pad them by ", padding, " to ", length + padding,
                   ", and ignore the padding in the loss");
  return length / parts;
}

at::Tensor part_of_rank(const at::Tensor& whole, std::int64_t dim, std::int64_t rank, std::int64_t ranks,
                        bool balanced) {
  const std::int64_t parts = ranks * (balanced ? 2 : 1), length = whole.size(dim) / parts;
  const at::Tensor first = whole.narrow(dim, rank * length, length);
  return balanced ? at::cat({first, whole.narrow(dim, (parts - 1 - rank) * length, length)}, dim) : first;
}

/// Joins the parts of all ranks to one sequence.
at::Tensor join_parts(const std::vector<at::Tensor>& of_ranks, std::int64_t dim, bool balanced) {
  std::vector<at::Tensor> parts = of_ranks;
  if (balanced) {
    const std::int64_t length = of_ranks.front().size(dim) / 2;
    for (at::Tensor& part : parts) {
      part = part.narrow(dim, 0, length);
    }
    for (auto rank = of_ranks.rbegin(); rank != of_ranks.rend(); ++rank) {
      parts.push_back(rank->narrow(dim, length, length));
    }
  }
  return at::cat(parts, dim);
}

struct GatherContext : torch::autograd::Function<GatherContext> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& part, std::int64_t dim,
                            const Group& group, bool balanced) {
    context->saved_data["group"] = detail::hold_group(group);
    context->saved_data["dim"] = dim;
    context->saved_data["balanced"] = balanced;
    // An additional first dimension makes the group compare all sizes; rows may differ in the first.
    std::vector<at::Tensor> parts = group.all_gather(part.unsqueeze(0));
    for (at::Tensor& of_rank : parts) {
      of_rank = of_rank.squeeze(0);
    }
    return join_parts(parts, dim, balanced);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list outputs) {
    detail::check_first_derivative("parallel.gather_context");
    const Group& group = detail::held_group(context->saved_data["group"]);
    const std::int64_t dim = context->saved_data["dim"].toInt();
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < group.size(); ++rank) {
      parts.push_back(part_of_rank(outputs[0], dim, rank, group.size(), context->saved_data["balanced"].toBool()));
    }
    return {group.reduce_scatter(at::stack(parts)).squeeze(0), {}, {}, {}};
  }
};

}  // namespace

std::int64_t context_padding(std::int64_t length, const Group& group, bool balanced) {
  if (group.size() == 1) {
    return 0;
  }
  const std::int64_t parts = count_parts(group, balanced), over = length % parts;
  return over == 0 ? 0 : parts - over;
}

at::Tensor context_part(const at::Tensor& whole, std::int64_t dim, const Group& group, bool balanced) {
  if (group.size() == 1) {
    return whole;
  }
  dim = c10::maybe_wrap_dim(dim, whole.dim());
  part_length(whole.size(dim), group, balanced, "parallel.context_part");
  return part_of_rank(whole, dim, group.rank(), group.size(), balanced);
}

at::Tensor context_positions(std::int64_t length, const Group& group, bool balanced, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  if (group.size() == 1) {
    return at::arange(length, options);
  }
  const std::int64_t part = part_length(length, group, balanced, "parallel.context_positions");
  const std::int64_t first = group.rank() * part;
  const at::Tensor positions = at::arange(first, first + part, options);
  const std::int64_t last = (2 * group.size() - 1 - group.rank()) * part;
  return balanced ? at::cat({positions, at::arange(last, last + part, options)}) : positions;
}

at::Tensor gather_context(const at::Tensor& part, std::int64_t dim, const Group& group, bool balanced) {
  if (group.size() == 1) {
    return part;
  }
  dim = c10::maybe_wrap_dim(dim, part.dim());
  check<DataError>(!balanced || part.size(dim) % 2 == 0, "parallel.gather_context",
                   "expected the two parts of a balanced sequence, got ", part.size(dim),
                   " tokens; parts that are not balanced need balanced = false");
  return GatherContext::apply(part, dim, group, balanced);
}

}  // namespace danling::inline v0::parallel
