// Norms of vectors and of matrices within elements: linalg_norm, linalg_matrix_norm.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <tensors/nested/operators.hpp>
#include <tensors/nested/shapes.hpp>

namespace danling::inline v0::detail {
namespace {

std::optional<at::ScalarType> dtype_of(Call& call) {
  return call["dtype"].isNone() ? std::nullopt : std::optional(call["dtype"].toScalarType());
}

/// Norms of singular values: one call if both dimensions are static, else one per element.
void call_by_singular_values(Call& call, const at::Tensor& self, const std::vector<std::int64_t>& dims) {
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  std::vector<std::int64_t> own;
  for (const std::int64_t dim : dims) {
    const auto element_dim = structure.element_dim(dim, impl.element_rank());
    call.expect(element_dim.has_value(), "expected dimensions of the elements ", text_of_shapes(impl),
                ", got that of the batch: ", dim);
    if (structure.is_ragged(*element_dim)) {
      expect_fallback_allowed(call);
      call_per_element(call);
      return;
    }
    own.push_back(structure.values_dim(*element_dim));
  }
  const bool keepdim = call.boolean("keepdim");
  Structure kept = structure;
  for (std::int64_t& ragged : kept.ragged_dims) {
    const std::int64_t before = ragged;
    for (const std::int64_t dim : dims) {
      ragged -= !keepdim && *structure.element_dim(dim, impl.element_rank()) < before ? 1 : 0;
    }
  }
  call.expect(keepdim || structure.batch_first || kept.ragged_dims.front() == 0,
              "expected keepdim, or the batch as the first dimension, for elements ", text_of_shapes(impl));
  call["self"] = values_of(self);
  call["dim"] = own;
  call.run();
  call.result(0) = wrap(call.result(0).toTensor(), std::move(kept));
}

void finish_matrix_norm(Call& call, const at::Tensor& self, std::vector<std::int64_t> dims) {
  const bool keepdim = call.boolean("keepdim"), named = call["ord"].isString();
  const double order = named ? 0 : call["ord"].toScalar().toDouble();
  call.expect(dims.size() == 2, "expected two dimensions, got (", join(dims), ")");
  for (std::int64_t& dim : dims) {
    dim = wrapped_dim(call, self, dim);
  }
  call.expect(dims[0] != dims[1], "expected two dimensions, got one twice: (", join(dims), ")");
  if (named && call["ord"].toStringRef() == "fro") {
    call.finish(at::linalg_vector_norm(self, 2, dims, keepdim, dtype_of(call)));
    return;
  }
  if (named || std::abs(order) == 2) {
    call_by_singular_values(call, self, dims);
    return;
  }
  call.expect(std::abs(order) == 1 || std::isinf(order), "expected the order 1, 2, inf, their negatives, 'fro' or ",
              "'nuc', got ", order);
  // The largest or smallest of the sums over rows or columns.
  std::int64_t summed = std::abs(order) == 1 ? dims[0] : dims[1], rest = std::abs(order) == 1 ? dims[1] : dims[0];
  const at::Tensor sums = at::linalg_vector_norm(self, 1, {summed}, keepdim, dtype_of(call));
  rest -= !keepdim && summed < rest ? 1 : 0;
  call.finish(order > 0 ? sums.amax(rest, keepdim) : sums.amin(rest, keepdim));
}

void call_matrix_norm(Call& call) {
  const at::Tensor self = call.tensor("self");
  finish_matrix_norm(call, self, *call.integers("dim"));
}

void call_linalg_norm(Call& call) {
  const at::Tensor self = call.tensor("self");
  const auto dims = call.integers("dim");
  if (call["ord"].isNone()) {
    const std::vector<std::int64_t> all = dims.value_or(std::vector<std::int64_t>());
    call.finish(at::linalg_vector_norm(self, 2, all.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(all),
                                       call.boolean("keepdim"), dtype_of(call)));
    return;
  }
  call.expect(dims.has_value() && !dims->empty(),
              "expected dimensions together with an order, got none; the norm of all ",
              "elements together is linalg_vector_norm");
  if (dims->size() == 1 && !call["ord"].isString()) {
    call.finish(at::linalg_vector_norm(self, call["ord"].toScalar(), *dims, call.boolean("keepdim"), dtype_of(call)));
    return;
  }
  finish_matrix_norm(call, self, *dims);
}

}  // namespace

void add_linalg_norms(OperatorTable& table) {
  table.add(Way::offsets, call_linalg_norm, {"linalg_norm"});
  table.add(Way::offsets, call_matrix_norm, {"linalg_matrix_norm"});
}

}  // namespace danling::inline v0::detail
