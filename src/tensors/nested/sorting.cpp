// Operators along one dimension that depend on order: scans, sorts, extremes with indices, products.
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/Dispatch.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>

#include <tensors/nested/operators.hpp>
#include <tensors/nested/reduction_plan.hpp>

namespace danling::inline v0::detail {
namespace {

enum class Padding { zero, one, smallest, largest, last };

/// Pads sequences with a neutral value for a kernel for equal lengths; the padding is cut off afterwards.
at::Tensor with_padding(const at::Tensor& values, const Structure& structure, Padding padding) {
  const at::ScalarType type = values.scalar_type();
  const bool floating = at::isFloatingType(type);
  if (padding == Padding::zero || padding == Padding::one) {
    return pad(values, structure, padding == Padding::one ? 1 : 0);
  }
  if (floating) {
    const double infinity = std::numeric_limits<double>::infinity();
    return pad(values, structure,
               padding == Padding::smallest  ? -infinity
               : padding == Padding::largest ? infinity
                                             : std::nan(""));  // sorts after infinity
  }
  if (type == at::kBool) {
    return pad(values, structure, padding == Padding::smallest ? 0 : 1);
  }
  // The limits of int64 are no doubles: fill by the mask, with a scalar of the type.
  at::Scalar limit;
  AT_DISPATCH_INTEGRAL_TYPES(type, "nested_tensor", [&] {
    using Limits = std::numeric_limits<scalar_t>;
    limit = padding == Padding::smallest ? Limits::lowest() : Limits::max();
  });
  c10::DimVector ragged_dims;  // counted in elements without the static dimensions
  for (std::size_t dim = 0; dim < structure.ragged->rank(); ++dim) {
    ragged_dims.push_back(static_cast<std::int64_t>(dim));
  }
  const at::Tensor valid = pad(at::ones({values.size(0)}, values.options().dtype(at::kBool)),
                               Structure{structure.ragged, ragged_dims, true, 0, false}, 0);
  const std::int64_t rank = structure.element_rank(values.dim());
  at::Tensor mask = valid;  // (batch, ragged...): other dimensions are inserted where the tensor has them
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    mask = structure.is_ragged(dim) ? mask : mask.unsqueeze(dim + 1);
  }
  mask = structure.batch_first || rank == 0 ? mask : mask.transpose(0, 1);
  return pad(values, structure, 0).masked_fill(mask.logical_not(), limit);
}

struct Along {
  at::Tensor self, values;
  const NestedTensorImpl* impl;
  std::optional<std::int64_t> dim;  ///< counted in an element
  bool ragged;
};

Along read_dim(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const auto dim = impl.structure().element_dim(call.integer("dim"), impl.element_rank());
  return {self, values_of(self), &impl, dim, dim && impl.structure().is_ragged(*dim)};
}

/// For calls without a dimension: reduces each element, flattened to one row.
void call_on_whole_elements(Call& call, const at::Tensor& self) {
  expect_fallback_allowed(call);
  const NestedTensorImpl& impl = *nested(self);
  const bool keepdim = call.boolean("keepdim");
  std::vector<std::vector<at::Tensor>> results(call.num_results());
  call.expect(impl.structure().batch() > 0, "expected elements, got an empty batch");
  for (const at::Tensor& element : elements_of(self)) {
    std::vector<c10::IValue> arguments;
    for (std::size_t at = 0; at < call.size(); ++at) {
      const std::string& name = call.schema().arguments()[at].name();
      arguments.push_back(name == "self"      ? c10::IValue(element.flatten())
                          : name == "dim"     ? c10::IValue(0)
                          : name == "keepdim" ? c10::IValue(false)
                                              : call[at]);
    }
    const auto own = call.run_with(std::move(arguments));
    for (std::size_t at = 0; at < results.size(); ++at) {
      results[at].push_back(own[at].toTensor());
    }
  }
  std::vector<c10::IValue> out;
  for (const auto& result : results) {
    const at::Tensor all = at::stack(result);
    out.emplace_back(keepdim ? all.unsqueeze(impl.structure().batch_dim(impl.element_rank())) : all);
  }
  call.finish(std::move(out));
}

/// True for long sequences on the CPU, where a call per sequence costs less than padding.
bool takes_calls(const Along& along) {
  const NestedTensorImpl& impl = *along.impl;
  return along.ragged && along.values.is_cpu() && impl.structure().batch() > 0 &&
         along.values.numel() / impl.structure().batch() >= values_for_a_call;
}

/// Operators that keep the size of the dimension.
template <Padding padding>
void call_scan(Call& call) {
  const Along along = read_dim(call);
  const Structure& structure = along.impl->structure();
  call.expect(along.dim.has_value(), "expected a dimension of the elements ", text_of_shapes(*along.impl),
              ", got that of the batch");
  if (takes_calls(along)) {
    return call_per_element(call);
  }
  if (!along.ragged) {
    call["self"] = along.values;
    call["dim"] = structure.values_dim(*along.dim);
  } else {
    call["self"] = with_padding(along.values, structure, padding);
  }
  call.run();
  for (std::size_t at = 0; at < call.num_results(); ++at) {
    const at::Tensor result = call.result(at).toTensor();
    call.result(at) = wrap(along.ragged ? pack(result, structure) : result, structure);
  }
}

/// Returns sorted values and their indices. Stable, so that padding stays behind equal values.
std::pair<at::Tensor, at::Tensor> sort_along(const Along& along, bool descending) {
  const Structure& structure = along.impl->structure();
  if (!along.ragged) {
    auto [values, indices] = at::sort(along.values, true, structure.values_dim(*along.dim), descending);
    return {wrap(values, structure), wrap(indices, structure)};
  }
  const at::Tensor padded = with_padding(along.values, structure, descending ? Padding::smallest : Padding::last);
  const std::int64_t dim = structure.tensor_dim(*along.dim, along.impl->element_rank());
  auto [values, indices] = at::sort(padded, true, dim, descending);
  return {wrap(pack(values, structure), structure), wrap(pack(indices, structure), structure)};
}

void call_sort(Call& call) {
  if (!call.has("dim")) {  // msort: along the batch of a plain tensor
    call.refuse("expected a dimension to sort along: sort(dim)");
  }
  const Along along = read_dim(call);
  call.expect(along.dim.has_value(), "expected a dimension of the elements ", text_of_shapes(*along.impl),
              ", got that of the batch");
  if (takes_calls(along)) {
    return call_per_element(call);
  }
  auto [values, indices] = sort_along(along, call.boolean("descending"));
  if (call.num_results() == 1) {
    call.finish(indices);
  } else {
    call.finish({std::move(values), std::move(indices)});
  }
}

/// Selects the first `k` rows of each sequence along a ragged dimension.
at::Tensor first_along(const at::Tensor& tensor, const Along& along, std::int64_t k) {
  const Structure& structure = along.impl->structure();
  if (structure.batch() == 0) {
    return tensor;
  }
  const at::Tensor padded = pad(values_of(tensor), structure, 0);
  const std::size_t at = structure.ragged_index(*along.dim);
  std::vector<std::int64_t> sizes = structure.ragged->all_sizes();
  for (std::size_t next = at; next < sizes.size(); next += structure.ragged->rank()) {
    sizes[next] = k;
  }
  Structure own = structure;
  own.ragged = std::make_shared<Ragged>(structure.batch(), structure.ragged->rank(), std::move(sizes));
  const std::int64_t dim = structure.tensor_dim(*along.dim, along.impl->element_rank());
  return wrap(pack(padded.narrow(dim, 0, k), own), own);
}

void call_topk(Call& call) {
  const Along along = read_dim(call);
  call.expect(along.dim.has_value(), "expected a dimension of the elements ", text_of_shapes(*along.impl),
              ", got that of the batch");
  const Structure& structure = along.impl->structure();
  if (!along.ragged) {
    call["self"] = along.values;
    call["dim"] = structure.values_dim(*along.dim);
    call.run();
    call.result(0) = wrap(call.result(0).toTensor(), structure);
    call.result(1) = wrap(call.result(1).toTensor(), structure);
    return;
  }
  const std::int64_t k = call.integers("k")->front();
  for (std::int64_t element = 0; element < structure.batch(); ++element) {
    const std::int64_t length = structure.ragged->sizes(element)[structure.ragged_index(*along.dim)];
    call.expect(k <= length, "expected at least ", k, " values in each sequence, got ", length, " in element ",
                element);
  }
  if (takes_calls(along)) {
    return call_per_element(call);
  }
  const auto [values, indices] = sort_along(along, call.boolean("largest"));
  call.finish({first_along(values, along, k), first_along(indices, along, k)});
}

/// Operators that remove the dimension or leave size 1. `padding` must not change a result.
template <Padding padding, bool allows_empty>
void call_removing(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  if (!call.has("dim")) {
    call["self"] = values_of(self);
    call.run();
    return;
  }
  if (call["dim"].isNone()) {  // an index counts within one element
    call["dim"] = structure.batch_dim(impl.element_rank());
  }
  const ReductionPlan plan(call, impl, {call.integer("dim")}, call.boolean("keepdim"));
  if (plan.is_per_element()) {
    return call_on_whole_elements(call, self);
  }
  const at::Tensor values = values_of(self);
  if (plan.is_packed()) {
    call["self"] = values;
    call["dim"] = plan.values_dims().front();
    call["keepdim"] = false;
    call.run();
    for (std::size_t at = 0; at < call.num_results(); ++at) {
      call.result(at) = plan.finish(call.result(at).toTensor());
    }
    return;
  }
  const auto dim = structure.element_dim(call.integer("dim"), impl.element_rank());
  if (!allows_empty && dim) {
    for (std::int64_t element = 0; element < structure.batch(); ++element) {
      call.expect(structure.ragged->sizes(element)[structure.ragged_index(*dim)] > 0,
                  "expected values to reduce in each sequence, got an empty one");
    }
  }
  call["self"] = with_padding(values, structure, padding);
  call.run();
  const Structure kept = plan.kept_structure();
  for (std::size_t at = 0; at < call.num_results(); ++at) {
    const at::Tensor result = call.result(at).toTensor();
    call.result(at) = plan.is_nested() ? wrap(pack(result, kept), kept) : result;
  }
}

/// One call on the values along a static dimension; one per element along a ragged one.
void call_removing_per_element(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  if (!call.has("dim") || call["dim"].isNone()) {
    call["self"] = values_of(self).flatten();
    call.run();
    return;
  }
  const ReductionPlan plan(call, impl, {call.integer("dim")}, call.boolean("keepdim"));
  if (plan.is_packed()) {
    return call_removing<Padding::zero, true>(call);
  }
  if (plan.is_per_element()) {
    return call_on_whole_elements(call, self);
  }
  expect_fallback_allowed(call);
  const PerElement results = run_per_element(call);
  std::vector<c10::IValue> out;
  for (std::size_t at = 0; at < results.results.size(); ++at) {
    if (plan.is_nested()) {
      const at::Tensor nest = nest_results(results, at, impl, plan.kept_structure().ragged_dims);
      Structure kept = nested(nest)->structure();
      kept.batch_first = plan.batch_leads();
      out.emplace_back(wrap(values_of(nest), std::move(kept)));
      continue;
    }
    at::Tensor all = at::stack(results.results[at]);
    all = results.empty_batch ? all.narrow(0, 0, 0) : all;
    out.emplace_back(plan.batch_leads() ? all : all.transpose(0, 1));
  }
  call.finish(std::move(out));
}

}  // namespace

void add_sorting(OperatorTable& table) {
  table.add(Way::offsets, call_scan<Padding::zero>, {"cumsum", "cummax", "cummin", "logcumsumexp"});
  table.add(Way::offsets, call_scan<Padding::one>, {"cumprod"});  // a zero has a slower gradient
  table.add(Way::offsets, call_sort, {"sort", "argsort", "msort"});
  table.add(Way::offsets, call_topk, {"topk"});
  table.add(Way::offsets, call_removing<Padding::smallest, false>, {"max.dim", "argmax"});
  table.add(Way::offsets, call_removing<Padding::largest, false>, {"min.dim", "argmin"});
  table.add(Way::offsets, call_removing<Padding::one, true>, {"prod"});
  table.add(Way::mixed, call_removing_per_element,
            {"median", "nanmedian", "kthvalue", "mode", "quantile", "nanquantile"});
}

}  // namespace danling::inline v0::detail
