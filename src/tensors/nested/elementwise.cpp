// Elementwise operators: one call on the packed values, after broadcasting.
#include <algorithm>
#include <optional>
#include <utility>

#include <tensors/nested/broadcast.hpp>
#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

/// Fits a tensor argument to the values; other nested tensors must have the same ragged sizes.
at::Tensor fit(Call& call, const at::Tensor& tensor, const NestedTensorImpl& to) {
  const NestedTensorImpl* other = nested(tensor);
  if (other == nullptr) {
    return broadcast_to_values(call, tensor, to);
  }
  if (!other->structure().matches(to.structure())) {
    if (std::optional<at::Tensor> values = broadcast_nested_to_values(tensor, to)) {
      return std::move(*values);
    }
  }
  call.expect(other->structure().matches(to.structure()) && other->element_rank() == to.element_rank(),
              "expected NestedTensors of the same ragged sizes, got ", text_of_shapes(to), " and ",
              text_of_shapes(*other), text_of_layouts(to, *other));
  return values_of(tensor);
}

/// Returns true if `b` has size 1 wherever both differ.
bool is_larger(const Ragged& a, const Ragged& b) {
  if (&a == &b || a.rank() != b.rank() || a.batch() != b.batch()) {
    return a.rank() > b.rank();
  }
  const auto differ = std::mismatch(a.all_sizes().begin(), a.all_sizes().end(), b.all_sizes().begin());
  return differ.first != a.all_sizes().end() && *differ.second == 1;
}

}  // namespace

void call_elementwise(Call& call) {
  const bool in_place = call.is_in_place();
  at::Tensor first = call.first_nested();
  for (std::size_t at = 0; at < call.size() && !in_place; ++at) {  // other arguments have size 1 where this one is
                                                                   // longer
    const NestedTensorImpl* other = call[at].isTensor() ? nested(call[at].toTensor()) : nullptr;
    if (other != nullptr && is_larger(*other->structure().ragged, *nested(first)->structure().ragged)) {
      first = call[at].toTensor();
    }
  }
  const NestedTensorImpl& impl = *nested(first);
  call.expect(!in_place || nested(call[0].toTensor()) != nullptr,
              "expected a NestedTensor to change in place, got a tensor, which cannot hold a NestedTensor of ",
              text_of_shapes(impl));
  const at::Tensor self = in_place ? call[0].toTensor() : at::Tensor();
  for (std::size_t at = 0; at < call.size(); ++at) {
    c10::IValue& value = call[at];
    if (value.isTensor() && value.toTensor().defined()) {
      value = fit(call, value.toTensor(), impl);
    }
  }
  call.run();
  const std::int64_t rows = impl.structure().ragged->rows();
  for (std::size_t at = 0; at < call.num_results(); ++at) {
    c10::IValue& value = call.result(at);
    if (!value.isTensor() || !value.toTensor().defined()) {
      continue;
    }
    at::Tensor result = value.toTensor();
    if (in_place && at == 0) {
      replace_values(self, std::move(result));
      value = self;
    } else if (result.dim() == impl.values().dim() && result.size(0) == rows) {
      value = wrap(std::move(result), impl.structure());
    }
  }
}

void add_elementwise(OperatorTable& table) {
  // Operators without the tag (leaky_relu in LibTorch 2.11), and those that draw random numbers per value.
  table.add(Way::packed, call_elementwise,
            {"dropout",
             "alpha_dropout",
             "native_dropout",
             "bernoulli.p",
             "bernoulli",
             "normal_",
             "uniform_",
             "random_",
             "exponential_",
             "log_normal_",
             "geometric_",
             "cauchy_",
             "zero_",
             "fill_",
             "copy_",
             "masked_fill",
             "rand_like",
             "randn_like",
             "randint_like",
             "ones_like",
             "zeros_like",
             "full_like",
             "empty_like",
             "clone",
             "detach",
             "alias",
             "contiguous",
             "to",
             "_to_copy",
             "type_as",
             "pin_memory",
             "requires_grad_",
             "rrelu",
             "isclose",
             "isfinite",
             "isreal",
             "softplus",
             "relu6",
             "selu",
             "celu",
             "silu",
             "mish",
             "hardtanh",
             "clamp",
             "clip",
             "where.self",
             "nan_to_num",
             "lerp",
             "square",
             "float_power",
             "true_divide",
             "floor_divide",
             "subtract",
             "multiply",
             "divide",
             "absolute",
             "negative",
             "greater",
             "less",
             "greater_equal",
             "less_equal",
             "not_equal",
             "fix",
             "arccos",
             "arcsin",
             "arctan",
             "leaky_relu",
             "conj",
             "_conj",
             "resolve_conj",
             "resolve_neg",
             "real",
             "imag",
             "where.ScalarOther",
             "where.ScalarSelf",
             "where.Scalar",
             "clamp_min",
             "clamp_max",
             "isneginf",
             "isposinf",
             "isnan",
             "isinf",
             "signbit",
             "logical_and",
             "logical_or",
             "logical_xor",
             "logical_not",
             "hardswish",
             "rsub",
             "special_ndtr",
             "special_polygamma",
             "special_expit",
             "special_exp2",
             "special_expm1",
             "special_erf",
             "special_erfc",
             "special_log1p",
             "special_logit",
             "special_round",
             "special_xlogy",
             "special_psi",
             "special_digamma",
             "special_gammaln",
             "fill",
             "exponential",
             "geometric",
             "log_normal",
             "uniform",
             "cauchy"});
}

}  // namespace danling::inline v0::detail
