// Direct calls of LibTorch's CPU kernels, without dispatch and boxing.
#include <tape/direct.hpp>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/_log_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_log_softmax_cpu_dispatch.h>
#include <ATen/ops/_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_softmax_cpu_dispatch.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/gelu_backward_cpu_dispatch.h>
#include <ATen/ops/gelu_cpu_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_backward_cpu_dispatch.h>
#include <ATen/ops/mean_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/nll_loss_backward_cpu_dispatch.h>
#include <ATen/ops/nll_loss_forward_cpu_dispatch.h>
#include <ATen/ops/sigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/sigmoid_cpu_dispatch.h>
#include <ATen/ops/sub_cpu_dispatch.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <ATen/ops/tanh_backward_cpu_dispatch.h>
#include <ATen/ops/tanh_cpu_dispatch.h>
#include <ATen/ops/threshold_backward_cpu_dispatch.h>

namespace danling::inline v0::tape {
namespace direct {
namespace {

using Maker = Kernel (*)(const BoundCall&);

std::optional<at::Tensor> maybe(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

std::optional<at::ScalarType> dtype_of(const c10::IValue& value) {
  return value.isNone() ? std::nullopt : std::optional(value.toScalarType());
}

using Unary = at::Tensor& (*)(const at::Tensor&, at::Tensor&);
template <Unary function>
Kernel unary(const BoundCall& b) {
  return [x = b.argument(0), out = b.result()]() mutable { function(x, out); };
}

using Binary = at::Tensor& (*)(const at::Tensor&, const at::Tensor&, at::Tensor&);
template <Binary function>
Kernel binary(const BoundCall& b) {
  return [x = b.argument(0), y = b.argument(1), out = b.result()]() mutable { function(x, y, out); };
}

using Scaled = at::Tensor& (*)(const at::Tensor&, const at::Tensor&, const at::Scalar&, at::Tensor&);
template <Scaled function>
Kernel scaled(const BoundCall& b) {
  return [x = b.argument(0), y = b.argument(1), alpha = b.number(2).toScalar(), out = b.result()]() mutable {
    function(x, y, alpha, out);
  };
}

using Softmax = at::Tensor& (*)(const at::Tensor&, std::int64_t, bool, at::Tensor&);
template <Softmax function>
Kernel softmax(const BoundCall& b) {
  return [x = b.argument(0), dim = b.number(1).toInt(), widen = b.number(2).toBool(), out = b.result()]() mutable {
    function(x, dim, widen, out);
  };
}

using SoftmaxBackward = at::Tensor& (*)(const at::Tensor&, const at::Tensor&, std::int64_t, at::ScalarType,
                                        at::Tensor&);
template <SoftmaxBackward function>
Kernel softmax_backward(const BoundCall& b) {
  return [gradient = b.argument(0), y = b.argument(1), dim = b.number(2).toInt(), dtype = b.number(3).toScalarType(),
          out = b.result()]() mutable { function(gradient, y, dim, dtype, out); };
}

using Reduction = at::Tensor& (*)(const at::Tensor&, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>,
                                  at::Tensor&);
template <Reduction function>
Kernel reduction(const BoundCall& b) {
  if (b.number(1).isNone()) {
    return {};
  }
  return
      [x = b.argument(0), dims = b.number(1).toIntVector(), keep = b.number(2).toBool(), dtype = dtype_of(b.number(3)),
       out = b.result()]() mutable { function(x, at::OptionalIntArrayRef(dims), keep, dtype, out); };
}

Kernel addmm(const BoundCall& b) {
  return [bias = b.argument(0), x = b.argument(1), y = b.argument(2), beta = b.number(3).toScalar(),
          alpha = b.number(4).toScalar(),
          out = b.result()]() mutable { at::cpu::addmm_outf(bias, x, y, beta, alpha, out); };
}

Kernel relu(const BoundCall& b) {
  return [x = b.argument(0), out = b.result()]() mutable { at::cpu::clamp_min_outf(x, 0, out); };
}

Kernel threshold_backward(const BoundCall& b) {
  return [gradient = b.argument(0), x = b.argument(1), threshold = b.number(2).toScalar(), out = b.result()]() mutable {
    at::cpu::threshold_backward_outf(gradient, x, threshold, out);
  };
}

Kernel gelu(const BoundCall& b) {
  return [x = b.argument(0), form = b.number(1).toStringRef(), out = b.result()]() mutable {
    at::cpu::gelu_outf(x, form, out);
  };
}

Kernel gelu_backward(const BoundCall& b) {
  return [gradient = b.argument(0), x = b.argument(1), form = b.number(2).toStringRef(), out = b.result()]() mutable {
    at::cpu::gelu_backward_outf(gradient, x, form, out);
  };
}

Kernel nll_loss(const BoundCall& b) {
  return [x = b.argument(0), target = b.argument(1), weight = maybe(b.argument(2)), reduction = b.number(3).toInt(),
          ignored = b.number(4).toInt(), out = b.result(0), total = b.result(1)]() mutable {
    at::cpu::nll_loss_forward_outf(x, target, weight, reduction, ignored, out, total);
  };
}

Kernel nll_loss_backward(const BoundCall& b) {
  return [gradient = b.argument(0), x = b.argument(1), target = b.argument(2), weight = maybe(b.argument(3)),
          reduction = b.number(4).toInt(), ignored = b.number(5).toInt(), total = b.argument(6),
          out = b.result()]() mutable {
    at::cpu::nll_loss_backward_outf(gradient, x, target, weight, reduction, ignored, total, out);
  };
}

Kernel max_pool_backward(const BoundCall& b) {
  return [gradient = b.argument(0), x = b.argument(1), size = b.number(2).toIntVector(),
          step = b.number(3).toIntVector(), border = b.number(4).toIntVector(), dilation = b.number(5).toIntVector(),
          ceil = b.number(6).toBool(), places = b.argument(7), out = b.result()]() mutable {
    at::cpu::max_pool2d_with_indices_backward_outf(gradient, x, size, step, border, dilation, ceil, places, out);
  };
}

/// Makers by operator name and overload.
const std::map<std::pair<std::string, std::string>, Maker>& makers() {
  static const std::map<std::pair<std::string, std::string>, Maker> all = {
      {{"aten::addmm", ""}, addmm},
      {{"aten::mm", ""}, binary<at::cpu::mm_outf>},
      {{"aten::bmm", ""}, binary<at::cpu::bmm_outf>},
      {{"aten::add", "Tensor"}, scaled<at::cpu::add_outf>},
      {{"aten::sub", "Tensor"}, scaled<at::cpu::sub_outf>},
      {{"aten::mul", "Tensor"}, binary<at::cpu::mul_outf>},
      {{"aten::div", "Tensor"}, binary<static_cast<Binary>(at::cpu::div_outf)>},
      {{"aten::relu", ""}, relu},
      {{"aten::threshold_backward", ""}, threshold_backward},
      {{"aten::gelu", ""}, gelu},
      {{"aten::gelu_backward", ""}, gelu_backward},
      {{"aten::tanh", ""}, unary<at::cpu::tanh_outf>},
      {{"aten::tanh_backward", ""}, binary<at::cpu::tanh_backward_outf>},
      {{"aten::sigmoid", ""}, unary<at::cpu::sigmoid_outf>},
      {{"aten::sigmoid_backward", ""}, binary<at::cpu::sigmoid_backward_outf>},
      {{"aten::_softmax", ""}, softmax<at::cpu::_softmax_outf>},
      {{"aten::_log_softmax", ""}, softmax<at::cpu::_log_softmax_outf>},
      {{"aten::_softmax_backward_data", ""}, softmax_backward<at::cpu::_softmax_backward_data_outf>},
      {{"aten::_log_softmax_backward_data", ""}, softmax_backward<at::cpu::_log_softmax_backward_data_outf>},
      {{"aten::sum", "dim_IntList"}, reduction<static_cast<Reduction>(at::cpu::sum_outf)>},
      {{"aten::mean", "dim"}, reduction<static_cast<Reduction>(at::cpu::mean_outf)>},
      {{"aten::nll_loss_forward", ""}, nll_loss},
      {{"aten::nll_loss_backward", ""}, nll_loss_backward},
      {{"aten::max_pool2d_with_indices_backward", ""}, max_pool_backward},
  };
  return all;
}

}  // namespace
}  // namespace direct

Kernel direct_kernel(const BoundCall& call) {
  const auto& schema = call.call.op.schema();
  const auto found = direct::makers().find({schema.name(), schema.overload_name()});
  return found == direct::makers().end() ? Kernel() : found->second(call);
}

}  // namespace danling::inline v0::tape
