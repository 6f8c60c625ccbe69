// Reductions to sums, means, extremes, norms and logical values: packed, per sequence, or over all values.
#include <cmath>
#include <functional>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>

#include <tensors/nested/operators.hpp>
#include <tensors/nested/reduction_plan.hpp>

namespace danling::inline v0::detail {
namespace {

using Reduce = std::vector<at::Tensor> (*)(Call&, const at::Tensor& rows, const Segments&);

at::Tensor with_dtype(Call& call, const at::Tensor& values) {
  return call.has("dtype") && !call["dtype"].isNone() ? values.to(call["dtype"].toScalarType()) : values;
}

bool is_narrow(const at::Tensor& values) {
  return values.scalar_type() == at::kHalf || values.scalar_type() == at::kBFloat16;
}

/// Converts to the type of sums: int64 for integers.
at::Tensor summable(Call& call, const at::Tensor& rows) {
  const at::Tensor typed = with_dtype(call, rows);
  const bool chosen = call.has("dtype") && !call["dtype"].isNone();
  return !chosen && at::isIntegralType(typed.scalar_type(), /*includeBool=*/true) ? typed.to(at::kLong) : typed;
}

/// Returns values in float for quotients, and the dtype of the result.
at::Tensor in_full_precision(Call& call, const at::Tensor& rows) {
  const at::Tensor typed = with_dtype(call, rows);
  call.expect(!at::isIntegralType(typed.scalar_type(), /*includeBool=*/true), "expected floating values, got ",
              typed.dtype().name());
  return is_narrow(typed) ? typed.to(at::kFloat) : typed;
}
at::Tensor restored(Call& call, const at::Tensor& result, const at::Tensor& rows) {
  const bool chosen = call.has("dtype") && !call["dtype"].isNone();
  const at::ScalarType type = chosen ? call["dtype"].toScalarType() : rows.scalar_type();
  return result.to(result.is_complex() ? type : c10::toRealValueType(type));
}

void expect_values(Call& call, const Segments& segments) {
  call.expect(!segments.has_empty(), "expected values to reduce in each sequence, got an empty one");
}

std::vector<at::Tensor> reduce_sum(Call& call, const at::Tensor& rows, const Segments& segments) {
  return {segment_sum(summable(call, rows), segments)};
}

std::vector<at::Tensor> reduce_nansum(Call& call, const at::Tensor& rows, const Segments& segments) {
  const at::Tensor values = summable(call, rows);
  return {
      segment_sum(at::isFloatingType(values.scalar_type()) ? values.masked_fill(values.isnan(), 0) : values, segments)};
}

std::vector<at::Tensor> reduce_mean(Call& call, const at::Tensor& rows, const Segments& segments) {
  const at::Tensor sum = segment_sum(in_full_precision(call, rows), segments);
  return {restored(call, sum / segments.counts_like(sum), rows)};
}

std::vector<at::Tensor> reduce_nanmean(Call& call, const at::Tensor& rows, const Segments& segments) {
  const at::Tensor values = in_full_precision(call, rows);
  const at::Tensor missing = values.isnan();
  const at::Tensor count = segment_sum(missing.logical_not().to(values.scalar_type()), segments);
  return {restored(call, segment_sum(values.masked_fill(missing, 0), segments) / count, rows)};
}

/// Returns the variance and the mean.
std::pair<at::Tensor, at::Tensor> moments(Call& call, const at::Tensor& rows, const Segments& segments) {
  double correction = 1;
  if (call.has("unbiased")) {
    correction = call.boolean("unbiased") ? 1 : 0;
  } else if (call.has("correction") && !call["correction"].isNone()) {
    correction = call["correction"].toScalar().toDouble();
  }
  const at::Tensor values = in_full_precision(call, rows), sum = segment_sum(values, segments);
  const at::Tensor count = segments.counts_like(sum), mean = sum / count;
  const at::Tensor centered = values - mean.index_select(0, segments.index);
  const at::Tensor squares = centered.is_complex() ? at::view_as_real(centered).square().sum(-1) : centered.square();
  return {segment_sum(squares, segments) / (count - correction).clamp_min(0), mean};
}

/// sqrt with gradient 0 at 0, as std and norms have.
at::Tensor root(const at::Tensor& squares) {
  const at::Tensor zero = squares.eq(0);
  return squares.masked_fill(zero, 1).sqrt().masked_fill(zero, 0);
}

std::vector<at::Tensor> reduce_var(Call& call, const at::Tensor& rows, const Segments& segments) {
  return {restored(call, moments(call, rows, segments).first, rows)};
}
std::vector<at::Tensor> reduce_std(Call& call, const at::Tensor& rows, const Segments& segments) {
  return {restored(call, root(moments(call, rows, segments).first), rows)};
}
std::vector<at::Tensor> reduce_var_mean(Call& call, const at::Tensor& rows, const Segments& segments) {
  const auto [variance, mean] = moments(call, rows, segments);
  return {restored(call, variance, rows), restored(call, mean, rows)};
}
std::vector<at::Tensor> reduce_std_mean(Call& call, const at::Tensor& rows, const Segments& segments) {
  const auto [variance, mean] = moments(call, rows, segments);
  return {restored(call, root(variance), rows), restored(call, mean, rows)};
}

std::vector<at::Tensor> reduce_amax(Call& call, const at::Tensor& rows, const Segments& segments) {
  expect_values(call, segments);
  return {segment_amax(rows, segments)};
}
std::vector<at::Tensor> reduce_amin(Call& call, const at::Tensor& rows, const Segments& segments) {
  expect_values(call, segments);
  return {segment_amin(rows, segments)};
}
std::vector<at::Tensor> reduce_aminmax(Call& call, const at::Tensor& rows, const Segments& segments) {
  expect_values(call, segments);
  return {segment_amin(rows, segments), segment_amax(rows, segments)};
}

std::vector<at::Tensor> reduce_logsumexp(Call& call, const at::Tensor& rows, const Segments& segments) {
  call.expect(at::isFloatingType(rows.scalar_type()), "expected floating values, got ", rows.dtype().name());
  return {segment_logsumexp(rows, segments)};
}

std::vector<at::Tensor> reduce_any(Call&, const at::Tensor& rows, const Segments& segments) {
  const at::ScalarType type = rows.scalar_type() == at::kByte ? at::kByte : at::kBool;
  return {segment_sum(rows.ne(0).to(at::kLong), segments).ne(0).to(type)};
}
std::vector<at::Tensor> reduce_all(Call&, const at::Tensor& rows, const Segments& segments) {
  const at::ScalarType type = rows.scalar_type() == at::kByte ? at::kByte : at::kBool;
  return {segment_sum(rows.eq(0).to(at::kLong), segments).eq(0).to(type)};
}
std::vector<at::Tensor> reduce_count_nonzero(Call&, const at::Tensor& rows, const Segments& segments) {
  return {segment_sum(rows.ne(0).to(at::kLong), segments)};
}

std::vector<at::Tensor> reduce_norm(Call& call, const at::Tensor& rows, const Segments& segments) {
  const char* argument = call.has("ord") ? "ord" : "p";
  const double order = call[argument].isNone() ? 2 : call[argument].toScalar().toDouble();
  const at::Tensor size = in_full_precision(call, rows).abs();
  if (std::isinf(order)) {
    if (order < 0) {
      expect_values(call, segments);
    }
    const at::Tensor extreme = order > 0 ? segment_amax(size, segments).clamp_min(0) : segment_amin(size, segments);
    return {restored(call, extreme, rows)};
  }
  if (order == 0) {
    return {restored(call, segment_sum(size.sign(), segments), rows)};
  }
  if (order == 1) {
    return {restored(call, segment_sum(size, segments), rows)};
  }
  if (order == 2) {
    return {restored(call, root(segment_sum(size.square(), segments)), rows)};
  }
  const at::Tensor powers = segment_sum(size.pow(order), segments), zero = powers.eq(0);
  return {restored(call, powers.masked_fill(zero, 1).pow(1 / order).masked_fill(zero, 0), rows)};
}

std::vector<std::int64_t> dims_of(Call& call) {
  return call.has("dim") ? call.integers("dim").value_or(std::vector<std::int64_t>()) : std::vector<std::int64_t>();
}

/// True for any and all with an empty list of dimensions: LibTorch then reduces nothing.
bool is_logical_of_no_dims(Call& call) {
  return (call.name() == "any" || call.name() == "all") && call.has("dim") && !call["dim"].isNone() &&
         call.integers("dim")->empty();
}

template <Reduce reduce>
void call_reduction(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const std::vector<std::int64_t> dims = dims_of(call);
  const bool keepdim = call.has("keepdim") && call.boolean("keepdim");
  const ReductionPlan plan(call, impl, dims, keepdim);
  const at::Tensor values = values_of(self);
  const bool one_call = plan.is_packed() || plan.is_over_all_rows();
  if (one_call && dims.empty() && (!keepdim || is_logical_of_no_dims(call))) {
    const bool each_value = is_logical_of_no_dims(call);
    call["self"] = values;
    call.run();
    call.result(0) = each_value ? wrap(call.result(0).toTensor(), impl.structure()) : call.result(0);
    return;
  }
  const bool takes_one_dim = call["dim"].isInt();
  if (!one_call || (takes_one_dim && plan.values_dims().size() != 1)) {
    std::vector<c10::IValue> results;
    for (const at::Tensor& result : reduce(call, plan.rows(values), plan.segments(values.device()))) {
      results.emplace_back(plan.finish(result));
    }
    call.finish(std::move(results));
    return;
  }
  call["self"] = values;
  call["dim"] = takes_one_dim ? c10::IValue(plan.values_dims().front()) : c10::IValue(plan.values_dims());
  if (call.has("keepdim")) {
    call["keepdim"] = false;
  }
  call.run();
  for (std::size_t at = 0; at < call.num_results(); ++at) {
    call.result(at) = plan.finish(call.result(at).toTensor());
  }
}

}  // namespace

void add_reductions(OperatorTable& table) {
  table.add(Way::offsets, call_reduction<reduce_sum>, {"sum", "sum.dim_IntList"});
  table.add(Way::offsets, call_reduction<reduce_nansum>, {"nansum"});
  table.add(Way::offsets, call_reduction<reduce_mean>, {"mean", "mean.dim"});
  table.add(Way::offsets, call_reduction<reduce_nanmean>, {"nanmean"});
  table.add(Way::offsets, call_reduction<reduce_var>, {"var"});
  table.add(Way::offsets, call_reduction<reduce_std>, {"std"});
  table.add(Way::offsets, call_reduction<reduce_var_mean>, {"var_mean"});
  table.add(Way::offsets, call_reduction<reduce_std_mean>, {"std_mean"});
  table.add(Way::offsets, call_reduction<reduce_amax>, {"amax", "max"});
  table.add(Way::packed, call_elementwise, {"max.other", "min.other", "maximum", "minimum"});
  table.add(Way::offsets, call_reduction<reduce_amin>, {"amin", "min"});
  table.add(Way::offsets, call_reduction<reduce_aminmax>, {"aminmax"});
  table.add(Way::offsets, call_reduction<reduce_logsumexp>, {"logsumexp", "special_logsumexp"});
  table.add(Way::offsets, call_reduction<reduce_any>, {"any"});
  table.add(Way::offsets, call_reduction<reduce_all>, {"all"});
  table.add(Way::offsets, call_reduction<reduce_count_nonzero>, {"count_nonzero"});
  table.add(Way::offsets, call_reduction<reduce_norm>, {"norm", "linalg_vector_norm"});
}

}  // namespace danling::inline v0::detail
