// The path of one step: contexts, backward, the window's end, the update.
#include <danling/runner/torch_runner_base.hpp>

#include <algorithm>
#include <limits>

#include <ATen/ops/full_like.h>
#include <danling/checkpoint/manager.hpp>
#include <optim/memory.hpp>

#include "runner/services.hpp"

namespace danling::inline v0 {
namespace {

/// The value of that dtype nearest to `weight`; float64 is left as it is.
double rounded_to(at::ScalarType dtype, double weight) {
  const auto narrow = static_cast<float>(weight);
  switch (dtype) {
    case at::kBFloat16:
      return static_cast<float>(c10::BFloat16(narrow));
    case at::kHalf:
      // More than the first micro-batch 32,000 times over: finite, since its divisor is.
      return static_cast<float>(std::min(c10::Half(narrow), std::numeric_limits<c10::Half>::max()));
    case at::kFloat:
      return narrow;
    default:
      return weight;
  }
}

}  // namespace

PrecisionContext TorchRunnerBase::forward_context() { return {device().type(), autocast_dtype_}; }

PrecisionContext TorchRunnerBase::train_context() { return {device().type(), autocast_dtype_}; }

TorchRunnerBase::OpenStep& TorchRunnerBase::current_step(std::string_view operation) {
  if (open_step_ == nullptr) [[unlikely]] {
    fail<StateError>(operation, "expected a call from train_step, got one outside of a training step",
                     mode_ == RunnerMode::train ? "" : concat(", in mode ", to_string(mode_)));
  }
  return *open_step_;
}

void TorchRunnerBase::backward(const at::Tensor& loss) {
  OpenStep& step = current_step("runner.backward");
  ++step.backwards;
  check<StateError>(loss.defined(), "runner.backward", "expected a loss, got an undefined tensor");
  if (loss.numel() != 1) [[unlikely]] {
    fail<StateError>("runner.backward", "expected a loss of one element, got shape [", join(loss.sizes()),
                     "]; reduce it by its mean");
  }
  double weight = window_.weight();
  if (weight == 0.0) {
    return;  // not one valid target in this micro-batch
  }
  if (weight != 1.0) {
    weight = rounded_to(loss.scalar_type(), weight);
    window_.round_weight(weight);
  }
  // Seeding with the weight is free, a node `loss * weight` costs 6 microseconds.
  if (!seed_.defined() || seed_weight_ != weight || seed_.scalar_type() != loss.scalar_type() ||
      seed_.device() != loss.device() || seed_.sizes() != loss.sizes()) {
    seed_ = at::full_like(loss.detach(), weight);
    seed_weight_ = weight;
  }
  parallelism().backward(loss, seed_, step.place);
}

void TorchRunnerBase::step() {
  OpenStep& step = current_step("runner.step");
  ++step.steps;
  auto& train = state_.train;
  ++train.micro_step;
  if (step.backwards == 0) [[unlikely]] {
    require_gradients();
  }
  if (!step.place.closes) {
    // The next backward adds to the gradients in place.
    optim::detail::separate_gradients(optimizer->param_groups());
    return;
  }
  close_window(step);
}

void TorchRunnerBase::close_window(OpenStep& step) {
  auto& train = state_.train;
  parallelism().reduce_gradients(*optimizer);
  step.agreed = parallelism().agree({.weight = window_.total(), .stop = stop_requested()});
  window_.set_total(step.agreed.weight);
  step.updated = optimizer_step();
  train.global_step += step.updated ? 1 : 0;
  zero_grad();
  window_.reset();
  // A short window at the end of the data counts as a whole one, so that the next begins at its beginning.
  const std::int64_t accum = accum_steps_;
  if (accum > 1 && train.micro_step % accum != 0) {
    train.micro_step += accum - train.micro_step % accum;
  }
}

// A step that made no gradients learns nothing, and one that made them past backward() may weigh them wrongly.
void TorchRunnerBase::require_gradients() {
  bool any = window_.weight() == 0.0;
  for (const auto& group : optimizer->param_groups()) {
    for (const auto& param : group.params) {
      any = any || param.grad().defined();
    }
  }
  check<StateError>(any, "runner.step",
                    "expected a call of backward(loss) in train_step before step(), got none, and no "
                    "parameter has a gradient");
  if (window_.weight() != 0.0 && told_.insert("backward").second) {
    logger().warning(
        "runner.step: a train_step calls step() without backward(loss): its gradients are not weighed by the samples "
        "of "
        "the accumulation window, nor shared with other processes; call backward(loss) in place of loss.backward()");
  }
}

bool TorchRunnerBase::optimizer_step() {
  const double divisor = window_.divisor();
  if (divisor == 0.0) {
    return false;  // no micro-batch of the window had a valid target
  }
  checkpoint_manager_->maybe_wait_for_staging(std::nullopt);
  if (clips_) {
    const auto& options = config();
    for (auto& group : optimizer->param_groups()) {
      clip_params_.insert(clip_params_.end(), group.params.begin(), group.params.end());
    }
    const bool skip = options.skip_nonfinite_grad && parallelism().has_nonfinite(clip_params_);
    if (!skip && options.max_grad_value) {
      parallelism().clip_grad_value(clip_params_, *options.max_grad_value, divisor);
    }
    if (!skip && options.max_grad_norm) {
      parallelism().clip_grad_norm(clip_params_, *options.max_grad_norm, divisor);
    }
    clip_params_.clear();
    if (skip) {
      ++skipped_updates_;
      return false;
    }
  }
  optimizer->step(divisor);
  if (autocast_dtype_) {
    clear_autocast_cache();
  }
  if (scheduler && scheduler_by_step_) {
    scheduler->step();
  }
  return true;
}

void TorchRunnerBase::zero_grad() { parallelism().zero_grad(*optimizer); }

}  // namespace danling::inline v0
