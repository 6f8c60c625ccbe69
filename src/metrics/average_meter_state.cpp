// Saving, loading and merging states of AverageMeter.
#include <utility>
#include <vector>

#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>

#include <danling/core/error.hpp>

#include <metrics/average_meter.hpp>
#include <metrics/compensated.hpp>
#include <metrics/meter_part.hpp>
#include <metrics/scalar.hpp>

namespace danling::inline v0 {
namespace {

constexpr const char* load_meter_where = "average_meter.load_state_dict";
constexpr const char* merge_where = "average_meter.merge_states";

// A number for scalars, otherwise a copy.
State saved(const at::Tensor& tensor, bool elements) {
  return elements ? State(tensor.clone()) : State(detail::read_scalar(tensor));
}

// A float64 copy of a saved tensor, which must have the sum's shape.
at::Tensor loaded_like(const at::Tensor& sum, const State& state, const char* what) {
  check<StateError>(state.is_tensor() && state.tensor().defined() && state.tensor().sizes() == sum.sizes(),
                    load_meter_where, "expected ", what, " of the sum's shape, got another");
  return state.tensor().detach().to(sum.options(), /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

State AverageMeter::state_dict() const {
  const bool tensors = holds_tensors();
  const bool elements = tensors && extra_->sum.dim() > 0;
  const Batch whole = whole_batch();
  State state;
  state["value"] = saved(whole.parts > 0 ? whole.mean() : last_tensor(), elements);
  state["sum"] = tensors ? saved(extra_->sum, elements) : State(sum_);
  state["compensation"] = tensors ? saved(extra_->rest, elements) : State(rest_);
  state["n"] = own_n();
  state["count"] = own_count();
  if (whole.index >= 0) {
    state["batch_index"] = whole.index;
  }
  if (whole.parts > 1) {
    const auto [sum, rest] = whole.pair();
    state["batch"]["sum"] = saved(sum, elements);
    state["batch"]["compensation"] = saved(rest, elements);
    state["batch"]["parts"] = whole.parts;
  }
  return state;
}

void AverageMeter::load_state_dict(const State& state) {
  const State& value = state.at("value");
  const State& sum = state.at("sum");
  const State* rest = state.find("compensation");  // absent in older states
  const State* parts = state.find("batch");
  const State* index = state.find("batch_index");
  AverageMeter loaded;
  loaded.n_ = state.at("n").integer();
  loaded.count_ = state.at("count").integer();
  check<StateError>(loaded.n_ >= 0 && loaded.count_ >= 0, load_meter_where, "expected n and count of at least 0, got ",
                    loaded.n_, " and ", loaded.count_);
  const c10::InferenceMode normal(false);
  if (!sum.is_tensor()) {
    loaded.value_ = value.number();
    loaded.sum_ = sum.number();
    loaded.rest_ = rest != nullptr ? rest->number() : 0.0;
  } else {
    const at::Tensor& last = value.tensor();
    check<StateError>(last.defined() && sum.tensor().defined() && last.sizes() == sum.tensor().sizes(),
                      load_meter_where, "expected value and sum of one shape, got ", detail::tensor_text(last), " and ",
                      detail::tensor_text(sum.tensor()));
    Extra& extra = loaded.extra();
    extra.last = last.detach();
    extra.sum =
        sum.tensor().detach().to(detail::sum_type(sum.tensor().device()), /*non_blocking=*/false, /*copy=*/true);
    extra.rest = rest != nullptr ? loaded_like(extra.sum, *rest, "a compensation") : at::zeros_like(extra.sum);
  }
  if (index != nullptr) {
    loaded.extra().batch.index = index->integer();
    check<StateError>(index->integer() >= 0, load_meter_where, "expected a batch_index of at least 0, got ",
                      index->integer());
  }
  if (parts != nullptr) {
    Batch& batch = loaded.extra().batch;
    batch.parts = parts->at("parts").integer();
    check<StateError>(batch.parts > 1, load_meter_where, "expected a batch of at least 2 parts, got ", batch.parts);
    batch.divided = true;
    batch.n = std::exchange(loaded.n_, 0);
    if (sum.is_tensor()) {
      batch.sums = loaded_like(loaded.extra_->sum, parts->at("sum"), "the sum of the batch");
      batch.rests = loaded_like(loaded.extra_->sum, parts->at("compensation"), "the compensation of the batch");
    } else {
      batch.sum = parts->at("sum").number();
      batch.rest = parts->at("compensation").number();
    }
  }
  *this = std::move(loaded);
}

State AverageMeter::merge_states(std::span<const State> states) {
  std::vector<detail::MeterPart> parts;
  std::string form;
  std::int64_t count = 0;
  for (const State& state : states) {
    AverageMeter meter;
    meter.load_state_dict(state);
    const detail::MeterPart& part = parts.emplace_back(meter.own_part());
    check<StateError>(form.empty() || !part.any() || part.form() == form, merge_where, "expected states of ", form,
                      " alike, got one of ", part.form());
    form = part.any() ? part.form() : form;
    check<StateError>(part.count <= max_count - count, merge_where, "expected counts of at most ", max_count,
                      " together, got ", part.count, " after ", count);
    count += part.count;
  }
  if (states.size() == 1) {
    return clone(states.front());
  }
  AverageMeter meter;
  meter.take(detail::combined(parts));
  return meter.state_dict();
}

// Replaces the meter's data by these sums.
void AverageMeter::take(const detail::MeterPart& part) {
  reset();
  if (!part.any()) {
    return;
  }
  count_ = part.count;
  const bool elements = part.sum.dim() > 0;
  if (elements) {
    extra().sum = part.sum;
    extra().rest = part.rest;
    extra().last = part.batch;
  } else {
    value_ = detail::read_scalar(part.batch);
    sum_ = detail::read_scalar(part.sum);
    rest_ = detail::read_scalar(part.rest);
  }
  if (part.index >= 0) {
    extra().batch.index = part.index;
  }
  if (part.parts < 2) {
    n_ = part.n;
    return;
  }
  Batch& batch = extra().batch;
  batch.divided = true;
  batch.parts = part.parts;
  batch.n = part.n;
  if (elements) {
    batch.sums = part.batch_sum;
    batch.rests = part.batch_rest;
  } else {
    batch.sum = detail::read_scalar(part.batch_sum);
    batch.rest = detail::read_scalar(part.batch_rest);
  }
}

}  // namespace danling::inline v0
