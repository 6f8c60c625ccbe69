#include <danling/parallel/tensor_functions.hpp>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include <ATen/WrapDimUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include <danling/core/error.hpp>
#include <danling/parallel/parallelizable.hpp>
#include <danling/parallel/slices.hpp>

namespace danling::inline v0::parallel {

Parallelizable::~Parallelizable() = default;

namespace {

enum class Exchange { none, sum, concatenate, slice, sum_slice };

/// The collective of a forward pass, and that of its backward pass.
struct TensorExchange final : torch::CustomClassHolder {
  const char* name;
  Group group;
  Exchange forward, backward;
  std::int64_t dim = 0;
  std::vector<std::int64_t> sizes = {};  // sizes of the ranks' parts along `dim`
};

at::Tensor sum_of(const at::Tensor& input, const Group& group) {
  at::Tensor out = input.clone(at::MemoryFormat::Contiguous);
  group.all_reduce(out);
  return out;
}

at::Tensor own_part(const at::Tensor& input, const TensorExchange& of) {
  const auto rank = static_cast<std::size_t>(of.group.rank());
  const auto begin = std::accumulate(of.sizes.begin(), of.sizes.begin() + of.group.rank(), std::int64_t{0});
  // A copy: a view would keep the whole tensor alive.
  return input.narrow(of.dim, begin, of.sizes[rank]).clone(at::MemoryFormat::Contiguous);
}

at::Tensor concatenated(const at::Tensor& input, const TensorExchange& of, std::vector<std::int64_t>* sizes) {
  // A group gathers rows: only dimension 0 may differ.
  const auto parts = of.group.all_gather(input.movedim(of.dim, 0).contiguous());
  if (sizes != nullptr) {
    for (const at::Tensor& part : parts) {
      sizes->push_back(part.size(0));
    }
  }
  return at::cat(parts, 0).movedim(0, of.dim).contiguous();
}

at::Tensor part_of_sum(const at::Tensor& input, const TensorExchange& of) {
  return of.group.reduce_scatter(input.movedim(of.dim, 0).contiguous(), ReduceOp::sum, of.sizes)
      .movedim(0, of.dim)
      .contiguous();
}

at::Tensor run_exchange(Exchange kind, const at::Tensor& input, const TensorExchange& of,
                        std::vector<std::int64_t>* sizes = nullptr) {
  switch (kind) {
    case Exchange::none:
      return input;
    case Exchange::sum:
      return sum_of(input, of.group);
    case Exchange::concatenate:
      return concatenated(input, of, sizes);
    case Exchange::slice:
      return own_part(input, of);
    case Exchange::sum_slice:
      return part_of_sum(input, of);
  }
  return {};
}

struct ExchangeFunction : torch::autograd::Function<ExchangeFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const c10::intrusive_ptr<TensorExchange>& exchange) {
    const bool finds_sizes = exchange->forward == Exchange::concatenate;
    at::Tensor out = run_exchange(exchange->forward, input, *exchange, finds_sizes ? &exchange->sizes : nullptr);
    context->saved_data["exchange"] = c10::IValue::make_capsule(exchange);
    if (exchange->forward == Exchange::none) {
      return at::alias(out);
    }
    // If nothing was moved, it is a view of the received tensor, which no operator could change in place.
    return out.is_view() ? out.variable_data() : out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto held = context->saved_data["exchange"].toCapsule();
    const auto& exchange = static_cast<const TensorExchange&>(*held);
    check<StateError>(!c10::GradMode::is_enabled(), exchange.name,
                      "expected a backward pass without create_graph, got one with it: second derivatives over ranks "
                      "are not implemented");
    return {run_exchange(exchange.backward, gradients[0], exchange), at::Tensor()};
  }
};

at::Tensor exchanged(const char* name, const at::Tensor& input, const Group& group, Exchange forward, Exchange backward,
                     std::int64_t dim = 0, std::vector<std::int64_t> sizes = {}) {
  check<DataError>(input.defined() && input.layout() == at::kStrided && !input.is_nested(), name,
                   "expected a strided tensor, got ",
                   !input.defined() ? "an undefined one" : "a nested or sparse one; pad it first");
  auto exchange = c10::make_intrusive<TensorExchange>();
  exchange->name = name;
  exchange->group = group;
  exchange->forward = forward;
  exchange->backward = backward;
  exchange->dim = dim;
  exchange->sizes = std::move(sizes);
  return ExchangeFunction::apply(input, exchange);
}

std::int64_t dimension(const char* name, const at::Tensor& input, std::int64_t dim) {
  check<DataError>(input.defined() && dim < input.dim() && dim >= -input.dim(), name, "expected a dimension of ",
                   input.defined() ? input.dim() : 0, ", got ", dim);
  return at::maybe_wrap_dim(dim, input.dim());
}

std::vector<std::int64_t> checked_sizes(const char* name, at::IntArrayRef sizes, std::int64_t size, int ranks) {
  if (sizes.empty()) {
    return part_sizes(size, ranks);
  }
  check<DataError>(sizes.size() == static_cast<std::size_t>(ranks) &&
                       std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == size,
                   name, "expected ", ranks, " parts of ", size, " values together, got [", join(sizes), "]");
  return sizes.vec();
}

}  // namespace

std::vector<std::int64_t> part_sizes(std::int64_t size, int ranks, std::int64_t unit) {
  check<ConfigError>(unit > 0 && size % unit == 0, "parallel.part_sizes", "expected whole units of ", unit,
                     " values, got ", size, " values");
  const std::int64_t units = size / unit, each = (units + ranks - 1) / ranks;
  std::vector<std::int64_t> out;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    out.push_back(std::clamp(units - rank * each, std::int64_t{0}, each) * unit);
  }
  return out;
}

at::Tensor copy_to_group(const at::Tensor& input, const Group& group) {
  return group.alone() ? input : exchanged("parallel.copy_to_group", input, group, Exchange::none, Exchange::sum);
}

at::Tensor reduce_from_group(const at::Tensor& input, const Group& group) {
  return group.alone() ? input : exchanged("parallel.reduce_from_group", input, group, Exchange::sum, Exchange::none);
}

at::Tensor gather_from_group(const at::Tensor& input, const Group& group, std::int64_t dim) {
  static constexpr auto name = "parallel.gather_from_group";
  return group.alone()
             ? input
             : exchanged(name, input, group, Exchange::concatenate, Exchange::slice, dimension(name, input, dim));
}

at::Tensor scatter_to_group(const at::Tensor& input, const Group& group, std::int64_t dim, at::IntArrayRef sizes) {
  static constexpr auto name = "parallel.scatter_to_group";
  if (group.alone()) {
    return input;
  }
  const std::int64_t along = dimension(name, input, dim);
  return exchanged(name, input, group, Exchange::slice, Exchange::concatenate, along,
                   checked_sizes(name, sizes, input.size(along), group.size()));
}

at::Tensor gather_sequence(const at::Tensor& input, const Group& group, std::int64_t dim) {
  static constexpr auto name = "parallel.gather_sequence";
  return group.alone()
             ? input
             : exchanged(name, input, group, Exchange::concatenate, Exchange::sum_slice, dimension(name, input, dim));
}

at::Tensor reduce_scatter_sequence(const at::Tensor& input, const Group& group, std::int64_t dim,
                                   at::IntArrayRef sizes) {
  static constexpr auto name = "parallel.reduce_scatter_sequence";
  if (group.alone()) {
    return input;
  }
  const std::int64_t along = dimension(name, input, dim);
  return exchanged(name, input, group, Exchange::sum_slice, Exchange::concatenate, along,
                   checked_sizes(name, sizes, input.size(along), group.size()));
}

void broadcast_module(const torch::nn::Module& module, const Group& group, std::string_view axis) {
  if (group.alone()) {
    return;
  }
  const at::NoGradGuard no_grad;
  const auto send = [&](const at::Tensor& tensor) {
    if (tensor.defined()) {
      at::Tensor values = tensor.detach();
      group.broadcast(values, 0);
    }
  };
  for (const at::Tensor& parameter : module.parameters()) {
    const auto slices = slices_of(parameter);
    if (std::none_of(slices.begin(), slices.end(), [&](const Slice& slice) { return slice.axis == axis; })) {
      send(parameter);
    }
  }
  for (const at::Tensor& buffer : module.buffers()) {
    send(buffer);
  }
}

}  // namespace danling::inline v0::parallel
