#include <danling/parallel/expert_exchange.hpp>

#include <cstdint>
#include <numeric>
#include <vector>

#include <torch/csrc/autograd/custom_function.h>

#include <danling/core/error.hpp>

#include <parallel/held_group.hpp>

namespace danling::inline v0::parallel {
namespace {

struct AllToAll : torch::autograd::Function<AllToAll> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& rows, const Group& group,
                            const std::vector<std::int64_t>& sent, const std::vector<std::int64_t>& received) {
    context->saved_data["group"] = detail::hold_group(group);
    context->saved_data["received"] = received;
    at::Tensor out = group.all_to_all_single(rows, sent);
    const std::int64_t wanted = std::accumulate(received.begin(), received.end(), std::int64_t{0});
    check<DistributedError>(out.size(0) == wanted, "parallel.all_to_all", "expected ", wanted, " rows (",
                            join(received), " of each rank), got ", out.size(0));
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list outputs) {
    detail::check_first_derivative("parallel.all_to_all");
    const Group& group = detail::held_group(context->saved_data["group"]);
    return {
        group.all_to_all_single(outputs[0].contiguous(), context->saved_data["received"].toIntVector()), {}, {}, {}};
  }
};

}  // namespace

at::Tensor all_to_all(const at::Tensor& rows, const Group& group, at::IntArrayRef sent, at::IntArrayRef received) {
  return group.size() == 1 ? rows : AllToAll::apply(rows, group, sent.vec(), received.vec());
}

}  // namespace danling::inline v0::parallel
