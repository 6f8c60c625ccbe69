// The last batch of an AverageMeter, which may have several parts.
#include <tuple>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>

#include <danling/core/error.hpp>

#include <metrics/average_meter.hpp>
#include <metrics/compensated.hpp>
#include <metrics/meter_part.hpp>
#include <metrics/scalar.hpp>

namespace danling::inline v0 {
namespace {

void add_tensor(at::Tensor& sums, at::Tensor& rests, const at::Tensor& addend) {
  if (!sums.defined()) {
    const c10::InferenceMode normal(false);
    sums = addend.clone();
    rests = at::zeros_like(sums);
    return;
  }
  detail::add_compensated(sums, rests, addend.to(sums.device()));
}

}  // namespace

void AverageMeter::Batch::clear() {
  parts = 0;
  n = 0;
  sum = rest = 0.0;
  n_on_device = first = sums = rests = at::Tensor();
  divided = false;
}

void AverageMeter::continue_batch() {
  tape::mark_unrecordable("the step puts updates of a meter together (continue_batch)");
  extra().batch.continues = true;
}

void AverageMeter::begin_batch(std::int64_t index) {
  tape::mark_unrecordable("the step puts updates of a meter together (begin_batch)");
  check<MetricError>(index >= 0, "average_meter.begin_batch", "expected a number of at least 0, got ", index);
  extra().batch.next_index = index;
}

// Called before the last value is replaced: stores it as a part of the batch, or ends the batch.
void AverageMeter::begin_update() {
  if (extra_ == nullptr) {
    return;
  }
  extra_->ranks.reset();
  Batch& batch = extra_->batch;
  const bool continues = batch.next_index >= 0 ? batch.next_index == batch.index : batch.continues;
  batch.continues = false;
  if (continues) {
    fold_last(batch);
    batch.divided = true;
    return;
  }
  const bool as_before = batch.next_index < 0 && !batch.divided;
  batch.clear();
  batch.index = batch.next_index;
  if (as_before && !holds_tensors()) {
    extra_.reset();
  }
}

void AverageMeter::fold_last(Batch& batch) const {
  const bool on_device = extra_ != nullptr && extra_->last_n.defined();
  if (n_ == 0 && !on_device) {
    return;
  }
  const bool is_tensor = extra_ != nullptr && extra_->last.defined();
  const at::Tensor last = is_tensor ? last_tensor() : at::Tensor();
  if (batch.parts == 0) {
    batch.first = last;
    batch.number = value_;
  }
  ++batch.parts;
  if (!is_tensor) {
    batch.n += n_;
    detail::add_compensated(batch.sum, batch.rest, value_ * static_cast<double>(n_));
  } else if (!on_device) {
    batch.n += n_;
    add_tensor(batch.sums, batch.rests, last.mul(n_));
  } else {
    // The mean of no items is nan.
    const at::Tensor& n = extra_->last_n;
    add_tensor(batch.sums, batch.rests, at::where(n.gt(0), last.mul(n), 0.0));
    batch.n_on_device =
        batch.n_on_device.defined() ? batch.n_on_device.add(n.to(batch.n_on_device.device())) : n.to(at::kLong);
  }
}

// Includes the whole last batch.
detail::MeterPart AverageMeter::own_part() const {
  detail::MeterPart out;
  out.count = own_count();
  const bool tensors = holds_tensors();
  if (out.count == 0 && !tensors) {
    return out;
  }
  out.sum = tensors ? extra_->sum : at::scalar_tensor(sum_, at::kDouble);
  out.rest = tensors ? extra_->rest : at::scalar_tensor(rest_, at::kDouble);
  const Batch whole = whole_batch();
  out.index = whole.index;
  out.parts = whole.parts;
  out.n = own_n();
  if (out.parts > 0) {
    std::tie(out.batch_sum, out.batch_rest) = whole.pair();
    out.batch = whole.mean();
  }
  return out;
}

AverageMeter::Batch AverageMeter::whole_batch() const {
  Batch whole = extra_ != nullptr ? Batch(extra_->batch) : Batch();
  fold_last(whole);
  return whole;
}

std::pair<at::Tensor, at::Tensor> AverageMeter::Batch::pair() const {
  const at::Tensor number_sum = at::scalar_tensor(sum, at::kDouble);
  const at::Tensor number_rest = at::scalar_tensor(rest, at::kDouble);
  if (!sums.defined()) {
    return {number_sum, number_rest};
  }
  at::Tensor both = sums.clone();
  at::Tensor left = rests.clone();
  if (sum != 0.0 || rest != 0.0) {
    detail::add_compensated(both, left, number_sum.to(both.options()));
    left.add_(number_rest.to(left.options()));
  }
  return {both, left};
}

at::Tensor AverageMeter::Batch::mean() const {
  if (parts == 1) {
    return first.defined() ? first : at::scalar_tensor(number, at::kDouble);
  }
  const auto [both, left] = pair();
  const at::Tensor whole = detail::whole_sum(both, left);
  return n_on_device.defined() ? whole.div(n_on_device.add(n)) : detail::divided(whole, n);
}

std::int64_t AverageMeter::own_n() const {
  const bool on_device = extra_ != nullptr && extra_->last_n.defined();
  const std::int64_t last = on_device ? extra_->last_n.item().toLong() : n_;
  if (extra_ == nullptr || extra_->batch.parts == 0) {
    return last;
  }
  const Batch& batch = extra_->batch;
  return last + batch.n + (batch.n_on_device.defined() ? batch.n_on_device.item().toLong() : 0);
}

at::Tensor AverageMeter::value_tensor() const {
  note_read();
  const bool counted_on_device = extra_ != nullptr && extra_->count.defined();
  if (count_ > 0 || counted_on_device) {
    return extra_ != nullptr && extra_->batch.parts > 0 ? whole_batch().mean() : last_tensor();
  }
  return holds_tensors() ? at::full(extra_->sum.sizes(), nan, extra_->sum.options())
                         : at::scalar_tensor(nan, at::kDouble);
}

at::Tensor AverageMeter::batch_tensor() const {
  note_read();
  if (ranks() != nullptr) {
    return ranks()->batch;
  }
  const bool weighted = n_ > 0 || (extra_ != nullptr && (extra_->last_n.defined() || extra_->batch.parts > 0));
  const at::Tensor value = value_tensor();
  return weighted ? value : at::full_like(value, nan);
}

}  // namespace danling::inline v0
