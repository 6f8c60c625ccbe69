// Operators per channel: norms with statistics over all valid tokens or over each sequence; prelu.
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>

#include <tensors/nested/operators.hpp>
#include <tensors/nested/segments.hpp>

namespace danling::inline v0::detail {
namespace {

at::Tensor optional_tensor(Call& call, const char* argument) {
  return call[argument].isTensor() ? call[argument].toTensor() : at::Tensor();
}

/// Moves the channels to a static dimension as found by channel_dim. In elements of equal sizes the channels may be
/// first or last; then the number of channels (-1 if unknown) decides.
at::Tensor with_channels(Call& call, const at::Tensor& input, std::int64_t channels) {
  call.expect(nested(input) != nullptr, "expected a NestedTensor as input, got one as a weight");
  const NestedTensorImpl& impl = *nested(input);
  const Structure& structure = impl.structure();
  const std::int64_t rank = impl.element_rank();
  if (!structure.guessed || rank < 2 || structure.batch() == 0) {
    return input;
  }
  const c10::DimVector sizes = impl.element_sizes(0);
  const bool first = channels < 0 || sizes.front() == channels, last = channels < 0 || sizes.back() == channels;
  call.expect(!first || !last, "expected one possible dimension of channels; all sizes are equal, so dimension 0 and ",
              rank - 1, " may both have ", channels < 0 ? "them" : concat("the ", channels), ", got ",
              text_of_shapes(impl), "; create the NestedTensor with the option ragged_dims");
  c10::DimVector rest;
  for (std::int64_t dim = 1; dim < rank; ++dim) {
    rest.push_back(dim);
  }
  return first ? with_ragged_dims(call, input, rest) : input;
}

/// Returns the size of the first of these arguments that is a tensor; -1 if none is.
std::int64_t num_channels(Call& call) {
  for (const char* argument : {"weight", "running_mean"}) {
    const at::Tensor tensor = call.has(argument) ? optional_tensor(call, argument) : at::Tensor();
    if (tensor.defined()) {
      return tensor.numel();
    }
  }
  return -1;
}

void call_batch_norm(Call& call) {
  const at::Tensor input = with_channels(call, call.tensor("input"), num_channels(call));
  const NestedTensorImpl& impl = *nested(input);
  const std::int64_t dim = impl.structure().values_dim(channel_dim(call, impl));
  call["input"] = values_of(input).movedim(dim, 1);
  call.run();
  call.result(0) = wrap(call.result(0).toTensor().movedim(1, dim), impl.structure());
}

/// Input of group and instance norms: (rows, channels, ...), with statistics per sequence and group over rows, channels
/// of the group and all further dimensions.
struct Normalised {
  at::Tensor values;          ///< (rows, channels, rest)
  at::Tensor mean, variance;  ///< (sequences, groups)
};

Normalised normalise(const at::Tensor& values, const Segments& segments, std::int64_t groups, double eps) {
  const bool narrow = values.scalar_type() == at::kHalf || values.scalar_type() == at::kBFloat16;
  const at::Tensor grouped = (narrow ? values.to(at::kFloat) : values)
                                 .reshape({values.size(0), groups, values.size(1) / groups * values.size(2)});
  const at::Tensor per_row = grouped.mean(2), sum = segment_sum(per_row, segments);
  const at::Tensor count = segments.counts_like(sum), mean = sum / count;
  const at::Tensor centered = grouped - mean.index_select(0, segments.index).unsqueeze(2);
  const at::Tensor variance = segment_sum(centered.square().mean(2), segments) / count;
  const at::Tensor scale = (variance + eps).rsqrt().index_select(0, segments.index).unsqueeze(2);
  return {(centered * scale).view(values.sizes()), mean, variance};
}

at::Tensor with_weight(Call& call, at::Tensor values, at::ScalarType type) {
  const at::Tensor weight = optional_tensor(call, "weight"), bias = optional_tensor(call, "bias");
  values = weight.defined() ? values * weight.unsqueeze(1) : values;
  values = bias.defined() ? values + bias.unsqueeze(1) : values;
  return values.to(type);
}

void call_group_norm(Call& call) {
  const at::Tensor input = with_channels(call, call.tensor("input"), num_channels(call));
  const NestedTensorImpl& impl = *nested(input);
  const std::int64_t dim = impl.structure().values_dim(channel_dim(call, impl)), groups = call.integer("num_groups");
  const at::Tensor moved = values_of(input).movedim(dim, 1);
  call.expect(groups > 0 && moved.size(1) % groups == 0, "expected channels divisible by ", groups, " groups, got ",
              moved.size(1));
  const Segments segments = segments_of(impl.structure(), moved.device());
  const at::Tensor values = moved.reshape(
      {moved.size(0), moved.size(1), moved.numel() == 0 ? 1 : moved.numel() / moved.size(0) / moved.size(1)});
  const Normalised out = normalise(values, segments, groups, call["eps"].toDouble());
  call.finish(
      wrap(with_weight(call, out.values, moved.scalar_type()).view(moved.sizes()).movedim(1, dim), impl.structure()));
}

void call_instance_norm(Call& call) {
  const at::Tensor input = with_channels(call, call.tensor("input"), num_channels(call));
  const NestedTensorImpl& impl = *nested(input);
  const std::int64_t dim = impl.structure().values_dim(channel_dim(call, impl));
  const at::Tensor moved = values_of(input).movedim(dim, 1);
  if (!call.boolean("use_input_stats")) {
    const at::Tensor mean = optional_tensor(call, "running_mean"), variance = optional_tensor(call, "running_var");
    call.expect(mean.defined() && variance.defined(), "expected running statistics or use_input_stats, got neither");
    const at::Tensor out = at::batch_norm(
        moved, optional_tensor(call, "weight"), optional_tensor(call, "bias"), mean, variance,
        /*training=*/false, call["momentum"].toDouble(), call["eps"].toDouble(), call.boolean("cudnn_enabled"));
    call.finish(wrap(out.movedim(1, dim), impl.structure()));
    return;
  }
  const Segments segments = segments_of(impl.structure(), moved.device());
  const std::int64_t rest = moved.numel() == 0 ? 1 : moved.numel() / moved.size(0) / moved.size(1);
  const Normalised out =
      normalise(moved.reshape({moved.size(0), moved.size(1), rest}), segments, moved.size(1), call["eps"].toDouble());
  const at::Tensor running_mean = optional_tensor(call, "running_mean"),
                   running_var = optional_tensor(call, "running_var");
  if (running_mean.defined() && running_var.defined() && segments.size() > 0) {
    const double momentum = call["momentum"].toDouble();
    const Ragged& ragged = *impl.structure().ragged;
    for (std::int64_t element = 0; element < ragged.batch(); ++element) {  // their variance would be nan for ever
      call.expect(ragged.rows_of(element) * rest > 1,
                  "expected elements of more than one position, since running statistics are updated, got ",
                  text_of_shapes(impl));
    }
    const at::Tensor count = segments.counts_like(out.variance) * rest;
    const at::Tensor unbiased = out.variance.detach() * count / (count - 1);
    running_mean.mul_(1 - momentum).add_(out.mean.detach().mean(0), momentum);
    running_var.mul_(1 - momentum).add_(unbiased.mean(0), momentum);
  }
  call.finish(
      wrap(with_weight(call, out.values, moved.scalar_type()).view(moved.sizes()).movedim(1, dim), impl.structure()));
}

/// prelu with one weight for all values or one per channel.
void call_prelu(Call& call) {
  const at::Tensor self = call.tensor("self"), weight = call.tensor("weight");
  call.expect(nested(self) != nullptr && nested(weight) == nullptr,
              "expected a NestedTensor as input and a plain weight, got a NestedTensor as weight");
  const at::Tensor input = weight.numel() == 1 ? self : with_channels(call, self, weight.numel());
  const NestedTensorImpl& impl = *nested(input);
  const std::int64_t dim = weight.numel() == 1 ? 1 : impl.structure().values_dim(channel_dim(call, impl));
  const at::Tensor values = values_of(input);
  call["self"] = weight.numel() == 1 ? values : values.movedim(dim, 1);
  call.run();
  const at::Tensor result = call.result(0).toTensor();
  call.result(0) = wrap(weight.numel() == 1 ? result : result.movedim(1, dim), impl.structure());
}

}  // namespace

std::int64_t channel_dim(Call& call, const NestedTensorImpl& input) {
  const Structure& structure = input.structure();
  const std::int64_t rank = input.element_rank();
  for (const std::int64_t dim : {std::int64_t{1}, rank}) {
    const auto own = dim <= rank ? structure.element_dim(dim, rank) : std::nullopt;
    if (own && !structure.is_ragged(*own)) {
      return *own;
    }
  }
  call.refuse("expected elements with a static dimension for channels or classes, second or last, got ",
              text_of_shapes(input));
}

void add_norms(OperatorTable& table) {
  table.add(Way::packed, call_batch_norm, {"batch_norm"});
  table.add(Way::packed, call_prelu, {"prelu"});
  table.add(Way::offsets, call_group_norm, {"group_norm"});
  table.add(Way::offsets, call_instance_norm, {"instance_norm"});
}

}  // namespace danling::inline v0::detail
