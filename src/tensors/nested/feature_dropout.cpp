// Dropout of whole channels: over the first two dimensions of the tensor, as in LibTorch.
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <tensors/nested/broadcast.hpp>
#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

/// Draws one random number per channel of each element, or per token if dimension 1 is the length. Also draws numbers
/// for padding, so that the others equal LibTorch's for the padded tensor.
template <bool is_alpha>
void call_feature_dropout(Call& call) {
  const at::Tensor self = call[0].toTensor();
  const double p = call["p"].toDouble();
  const bool in_place = call.is_in_place(), train = call.boolean("train");
  call.expect(p >= 0 && p <= 1, "expected a probability from 0 to 1, got ", p);
  const NestedTensorImpl& impl = *nested(self);
  at::Tensor values = values_of(self);
  if (train && p > 0 && values.numel() > 0) {
    at::Tensor scale, shift;
    if (p < 1) {
      c10::DimVector sizes(static_cast<std::size_t>(self.dim()), 1);
      sizes[0] = self.size(0);
      sizes[1] = self.size(1);
      scale = at::empty(sizes, values.options().requires_grad(false)).bernoulli_(1 - p);
      if (is_alpha) {  // keeps mean and variance of selu's output
        constexpr double alpha = 1.7580993408473766;
        const double slope = 1 / std::sqrt((alpha * alpha * p + 1) * (1 - p));
        shift = broadcast_to_values(call, (scale - 1) * (alpha * slope) + alpha * slope * p, impl);
        scale = scale * slope;
      } else {
        scale.div_(1 - p);
      }
      scale = broadcast_to_values(call, scale, impl);
    }
    if (in_place) {
      p < 1 ? values.mul_(scale) : values.mul_(0);
      values = shift.defined() ? values.add_(shift) : values;
    } else {
      values = p < 1 ? values * scale : values * 0;
      values = shift.defined() ? values + shift : values;
    }
  }
  if (in_place) {
    replace_values(self, values);
    call.finish(self);
    return;
  }
  call.finish(wrap(values, impl.structure()));
}

}  // namespace

void add_feature_dropout(OperatorTable& table) {
  table.add(Way::packed, call_feature_dropout<false>, {"feature_dropout"});
  table.add(Way::packed, call_feature_dropout<true>, {"feature_alpha_dropout"});
}

}  // namespace danling::inline v0::detail
