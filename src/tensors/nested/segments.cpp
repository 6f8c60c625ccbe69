// Reductions of groups of rows: our loops on the CPU, LibTorch's index kernels elsewhere.
#include <tensors/nested/segments.hpp>

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tensors/nested/segment_loops.hpp>

namespace danling::inline v0::detail {
namespace {

using SegmentContext = torch::autograd::AutogradContext;
using SegmentGradients = torch::autograd::variable_list;

struct SegmentsHolder : torch::CustomClassHolder {
  explicit SegmentsHolder(Segments kept) : segments(std::move(kept)) {}
  Segments segments;
};
using SegmentsPtr = c10::intrusive_ptr<SegmentsHolder>;

SegmentsPtr kept_segments(SegmentContext* context) {
  return c10::static_intrusive_pointer_cast<SegmentsHolder>(context->saved_data["segments"].toCapsule());
}

at::Tensor rows_from(const at::Tensor& reduced, const Segments& segments) {
  return reduced.index_select(0, segments.index);
}

at::Tensor reduce_rows(const at::Tensor& values, const Segments& segments, SegmentOp op) {
  const at::Scalar initial = initial_of(op, values.scalar_type());
  return values.is_cpu() && has_segment_loop(values.scalar_type()) ? loop_over_segments(values, segments, op, initial)
                                                                   : reduce_by_index(values, segments, op, initial);
}

struct SegmentSum : torch::autograd::Function<SegmentSum> {
  static at::Tensor forward(SegmentContext* context, const at::Tensor& values, const SegmentsPtr& segments) {
    context->saved_data["segments"] = c10::IValue::make_capsule(segments);
    return reduce_rows(values, segments->segments, SegmentOp::sum);
  }
  static SegmentGradients backward(SegmentContext* context, const SegmentGradients& gradients) {
    return {rows_from(gradients[0], kept_segments(context)->segments), at::Tensor()};
  }
};

struct SegmentExtreme : torch::autograd::Function<SegmentExtreme> {
  static at::Tensor forward(SegmentContext* context, const at::Tensor& values, const SegmentsPtr& segments, bool max) {
    context->saved_data["segments"] = c10::IValue::make_capsule(segments);
    const at::Tensor out = reduce_rows(values, segments->segments, max ? SegmentOp::max : SegmentOp::min);
    context->save_for_backward({values, out});
    return out;
  }
  static SegmentGradients backward(SegmentContext* context, const SegmentGradients& gradients) {
    const auto saved = context->get_saved_variables();
    const Segments& segments = kept_segments(context)->segments;
    const at::Tensor values = saved[0].detach(), out = saved[1].detach();
    const at::Tensor top = rows_from(out, segments);
    const at::Tensor equal = values.eq(top).logical_or(values.isnan().logical_and(top.isnan())).to(values.dtype());
    const at::Tensor share = gradients[0] / reduce_rows(equal, segments, SegmentOp::sum).clamp_min(1);
    return {rows_from(share, segments) * equal, at::Tensor(), at::Tensor()};
  }
};

at::Tensor logsumexp_of(const at::Tensor& values, const Segments& segments) {
  at::Tensor top = reduce_rows(values, segments, SegmentOp::max);
  top = top.masked_fill(top.isinf(), 0);
  return reduce_rows((values - rows_from(top, segments)).exp(), segments, SegmentOp::sum).log().add_(top);
}

struct SegmentLogsumexp : torch::autograd::Function<SegmentLogsumexp> {
  static at::Tensor forward(SegmentContext* context, const at::Tensor& values, const SegmentsPtr& segments) {
    context->saved_data["segments"] = c10::IValue::make_capsule(segments);
    const at::Tensor out = logsumexp_of(values, segments->segments);
    context->save_for_backward({values, out});
    return out;
  }
  static SegmentGradients backward(SegmentContext* context, const SegmentGradients& gradients) {
    const auto saved = context->get_saved_variables();
    const Segments& segments = kept_segments(context)->segments;
    const at::Tensor finite = saved[1].masked_fill(saved[1].isinf(), 0);
    return {rows_from(gradients[0], segments) * (saved[0] - rows_from(finite, segments)).exp(), at::Tensor()};
  }
};

/// True for long sequences on the CPU: one fused LibTorch kernel per sequence reads memory only once.
bool prefers_calls(const at::Tensor& values, const Segments& segments) {
  return values.is_cpu() && segments.contiguous && segments.size() > 0 &&
         values.numel() / segments.size() >= values_for_a_call;
}

/// Calls `kernel(out, rows of the segment, index)` for each non-empty segment.
template <class Kernel>
at::Tensor call_by_segment(const at::Tensor& values, const Segments& segments, const Kernel& kernel) {
  const at::Tensor out = at::empty_like(values, values.options(), at::MemoryFormat::Contiguous);
  std::int64_t first = 0;
  for (const std::int64_t count : segments.counts) {
    if (count > 0) {
      at::Tensor own = out.narrow(0, first, count);
      kernel(own, [&](const at::Tensor& of) { return of.narrow(0, first, count); });
    }
    first += count;
  }
  return out;
}

at::Tensor softmax_of(const at::Tensor& values, const Segments& segments) {
  if (prefers_calls(values, segments)) {
    return call_by_segment(values, segments, [&](at::Tensor& out, const auto& rows_of) {
      at::_softmax_out(out, rows_of(values), 0, /*half_to_float=*/false);
    });
  }
  const at::Tensor top = reduce_rows(values, segments, SegmentOp::max);
  at::Tensor out = (values - rows_from(top, segments)).exp_();
  return out.div_(rows_from(reduce_rows(out, segments, SegmentOp::sum), segments));
}

struct SegmentSoftmax : torch::autograd::Function<SegmentSoftmax> {
  static at::Tensor forward(SegmentContext* context, const at::Tensor& values, const SegmentsPtr& segments) {
    context->saved_data["segments"] = c10::IValue::make_capsule(segments);
    const at::Tensor out = softmax_of(values, segments->segments);
    context->save_for_backward({out});
    return out;
  }
  static SegmentGradients backward(SegmentContext* context, const SegmentGradients& gradients) {
    const SegmentsPtr holder = kept_segments(context);
    const at::Tensor out = context->get_saved_variables()[0];
    if (!c10::GradMode::is_enabled() && prefers_calls(out, holder->segments)) {
      return {call_by_segment(out, holder->segments,
                              [&](at::Tensor& into, const auto& rows_of) {
                                at::_softmax_backward_data_out(into, rows_of(gradients[0]), rows_of(out), 0,
                                                               out.scalar_type());
                              }),
              at::Tensor()};
    }
    const at::Tensor weighted = gradients[0] * out;
    return {weighted - out * rows_from(segment_sum(weighted, holder->segments), holder->segments), at::Tensor()};
  }
};

struct SegmentLogSoftmax : torch::autograd::Function<SegmentLogSoftmax> {
  static at::Tensor forward(SegmentContext* context, const at::Tensor& values, const SegmentsPtr& segments) {
    context->saved_data["segments"] = c10::IValue::make_capsule(segments);
    const Segments& own = segments->segments;
    if (prefers_calls(values, own)) {
      const at::Tensor out = call_by_segment(values, own, [&](at::Tensor& into, const auto& rows_of) {
        at::_log_softmax_out(into, rows_of(values), 0, /*half_to_float=*/false);
      });
      context->save_for_backward({out});
      return out;
    }
    at::Tensor shifted = values - rows_from(reduce_rows(values, own, SegmentOp::max), own);
    const at::Tensor total = reduce_rows(shifted.exp(), own, SegmentOp::sum).log_();
    const at::Tensor out = shifted.sub_(rows_from(total, own));
    context->save_for_backward({out});
    return out;
  }
  static SegmentGradients backward(SegmentContext* context, const SegmentGradients& gradients) {
    const SegmentsPtr holder = kept_segments(context);
    const at::Tensor out = context->get_saved_variables()[0];
    if (!c10::GradMode::is_enabled() && prefers_calls(out, holder->segments)) {
      return {call_by_segment(out, holder->segments,
                              [&](at::Tensor& into, const auto& rows_of) {
                                at::_log_softmax_backward_data_out(into, rows_of(gradients[0]), rows_of(out), 0,
                                                                   out.scalar_type());
                              }),
              at::Tensor()};
    }
    const at::Tensor total = rows_from(segment_sum(gradients[0], holder->segments), holder->segments);
    return {gradients[0] - out.exp() * total, at::Tensor()};
  }
};

/// Computes in float if the dtype is narrower.
template <class Function>
at::Tensor in_float(const at::Tensor& values, const Function& function) {
  const at::ScalarType type = values.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? function(values.to(at::kFloat)).to(type) : function(values);
}

SegmentsPtr keep(const Segments& segments) { return c10::make_intrusive<SegmentsHolder>(segments); }

}  // namespace

bool Segments::has_empty() const { return std::find(counts.begin(), counts.end(), 0) != counts.end(); }

at::Tensor Segments::counts_like(const at::Tensor& reduced) const {
  c10::DimVector sizes(static_cast<std::size_t>(reduced.dim()), 1);
  sizes[0] = size();
  const at::ScalarType type = at::isFloatingType(reduced.scalar_type()) && reduced.scalar_type() != at::kHalf &&
                                      reduced.scalar_type() != at::kBFloat16
                                  ? reduced.scalar_type()
                                  : at::kFloat;
  return at::tensor(counts, at::kLong).view(sizes).to(reduced.device(), type, /*non_blocking=*/true);
}

Segments Segments::repeated(std::int64_t times) const {
  if (times == 1) {
    return *this;
  }
  Segments out = *this;
  // An expanded row would be a view of one number, but the loops read memory.
  out.index = index.unsqueeze(1).expand({index.size(0), times}).reshape({-1}).contiguous();
  for (std::int64_t& count : out.counts) {
    count *= times;
  }
  return out;
}

Segments segments_of(const Structure& structure, at::Device device) {
  const Ragged& ragged = *structure.ragged;
  Segments out{ragged.elements_on(device), {}, true};
  out.counts.reserve(static_cast<std::size_t>(ragged.batch()));
  for (std::int64_t element = 0; element < ragged.batch(); ++element) {
    out.counts.push_back(ragged.rows_of(element));
  }
  return out;
}

at::Tensor segment_sum(const at::Tensor& values, const Segments& segments) {
  if (values.is_complex()) {
    return at::view_as_complex(segment_sum(at::view_as_real(values.resolve_conj()), segments));
  }
  return SegmentSum::apply(values, keep(segments));
}
/// Uses uint8 for bool, which LibTorch's CUDA kernels do not support.
at::Tensor segment_extreme(const at::Tensor& values, const Segments& segments, bool largest) {
  if (values.scalar_type() == at::kBool) {
    return SegmentExtreme::apply(values.to(at::kByte), keep(segments), largest).to(at::kBool);
  }
  return SegmentExtreme::apply(values, keep(segments), largest);
}
at::Tensor segment_amax(const at::Tensor& values, const Segments& segments) {
  return segment_extreme(values, segments, true);
}
at::Tensor segment_amin(const at::Tensor& values, const Segments& segments) {
  return segment_extreme(values, segments, false);
}
at::Tensor segment_logsumexp(const at::Tensor& values, const Segments& segments) {
  return in_float(values, [&](const at::Tensor& wide) { return SegmentLogsumexp::apply(wide, keep(segments)); });
}
at::Tensor segment_softmax(const at::Tensor& values, const Segments& segments) {
  return in_float(values, [&](const at::Tensor& wide) { return SegmentSoftmax::apply(wide, keep(segments)); });
}
at::Tensor segment_log_softmax(const at::Tensor& values, const Segments& segments) {
  return in_float(values, [&](const at::Tensor& wide) { return SegmentLogSoftmax::apply(wide, keep(segments)); });
}

}  // namespace danling::inline v0::detail
