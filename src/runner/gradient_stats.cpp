#include <runner/gradient_stats.hpp>

#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <tensors/raw.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr double smoothing = 0.99;

at::Tensor scalar(const at::Tensor& number) { return number.detach().reshape({}).to(at::kDouble); }

/// Moves `number` to the device of `like`: at the next update for the state of a checkpoint.
at::Tensor beside(const at::Tensor& number, const at::Tensor& like) {
  return number.defined() ? tensors::moved(number, like.device()) : at::zeros_like(like);
}

State number_of(const at::Tensor& number) { return number.defined() ? State(number.item().toDouble()) : State(); }

at::Tensor tensor_of(const State& number) {
  return number.is_null() ? at::Tensor() : at::full({}, number.number(), at::TensorOptions().dtype(at::kDouble));
}

}  // namespace

void GradientStats::add_part(const at::Tensor& norm_of_part, double samples) {
  if (noise) {
    part_ = scalar(norm_of_part).square();
    part_samples_ = samples;
  }
}

void GradientStats::add(const at::Tensor& norm_of_batch, double samples) {
  const at::NoGradGuard no_grad;
  const at::Tensor value = scalar(norm_of_batch);
  if (norm) {
    const at::Tensor finite = at::isfinite(value);
    last_ = value;
    sum_ = beside(sum_, value).add(value.masked_fill(finite.logical_not(), 0));
    count_ = beside(count_, value).add(finite);
  }
  const at::Tensor part = std::exchange(part_, at::Tensor());
  if (!part.defined() || part_samples_ >= samples) {
    return;  // the window was cut short
  }
  const double b = part_samples_;
  const at::Tensor whole = value.square();
  const at::Tensor signal = whole.mul(samples).sub(part, b).div(samples - b);
  const at::Tensor spread = part.sub(whole).div(1.0 / b - 1.0 / samples);
  const at::Tensor finite = at::logical_and(at::isfinite(whole), at::isfinite(part));
  const auto smooth = [&](at::Tensor& mean, const at::Tensor& now) {
    mean = beside(mean, value);
    mean = at::where(finite, mean.mul(smoothing).add(now, 1.0 - smoothing), mean);
  };
  smooth(signal_, signal);
  smooth(spread_, spread);
}

void GradientStats::reset_mean() { last_ = sum_ = count_ = at::Tensor(); }

std::optional<double> GradientStats::last_norm() const {
  return last_.defined() ? std::optional(last_.item().toDouble()) : std::nullopt;
}

std::optional<double> GradientStats::mean_norm() const {
  const double count = count_.defined() ? count_.item().toDouble() : 0.0;
  return count > 0 ? std::optional(sum_.item().toDouble() / count) : std::nullopt;
}

std::optional<double> GradientStats::noise_scale() const {
  if (!signal_.defined()) {
    return std::nullopt;
  }
  const double signal = signal_.item().toDouble();
  const double spread = spread_.item().toDouble();
  return signal > 0 && spread > 0 ? std::optional(spread / signal) : std::nullopt;
}

State GradientStats::state_dict() const {
  return State::Map{{"last", number_of(last_)},
                    {"sum", number_of(sum_)},
                    {"count", number_of(count_)},
                    {"signal", number_of(signal_)},
                    {"spread", number_of(spread_)}};
}

void GradientStats::load_state_dict(const State& state) {
  last_ = tensor_of(state.at("last"));
  sum_ = tensor_of(state.at("sum"));
  count_ = tensor_of(state.at("count"));
  signal_ = tensor_of(state.at("signal"));
  spread_ = tensor_of(state.at("spread"));
  part_ = at::Tensor();
}

}  // namespace danling::inline v0::detail
