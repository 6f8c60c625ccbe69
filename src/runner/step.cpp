// The path of one step: contexts, backward, the window's end, the update.
#include <danling/runner/torch_runner_base.hpp>

#include <algorithm>
#include <iterator>
#include <limits>

#include <ATen/ops/full_like.h>
#include <danling/checkpoint/manager.hpp>
#include <danling/core/suggest.hpp>
#include <optim/memory.hpp>

#include "runner/learners.hpp"
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

/// What a backward pass of one of several models gives gradients to.
std::vector<at::Tensor> trainable(const Learner& learner) {
  std::vector<at::Tensor> out;
  for (const auto& group : learner.optimizer->param_groups()) {
    std::copy_if(group.params.begin(), group.params.end(), std::back_inserter(out),
                 [](const at::Tensor& param) { return param.requires_grad(); });
  }
  return out;
}

bool has_gradient(const Learner& learner) {
  const auto& groups = learner.optimizer->param_groups();
  return std::any_of(groups.begin(), groups.end(), [](const auto& group) {
    return std::any_of(group.params.begin(), group.params.end(),
                       [](const at::Tensor& param) { return param.grad().defined(); });
  });
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
  const OpenStep& step = current_step("runner.backward");
  check<StateError>(loss.defined(), "runner.backward", "expected a loss, got an undefined tensor");
  if (loss.dim() != 0 && loss.numel() != 1) [[unlikely]] {
    fail<StateError>("runner.backward", "expected a loss of one element, got shape [", join(loss.sizes()),
                     "]; reduce it by its mean");
  }
  Learner& learner = *learner_;
  Learners(*this).begin_window(learner, step);
  ++learner.backwards;
  double weight = learner.window.weight();
  if (weight == 0.0) {
    return;  // not one valid target in this micro-batch
  }
  if (weight != 1.0) {
    weight = rounded_to(loss.scalar_type(), weight);
    learner.window.round_weight(weight);
  }
  // Seeding with the weight is free, a node `loss * weight` costs 6 microseconds.
  at::Tensor& seed = learner.seed;
  if (!seed.defined() || learner.seed_weight != weight || seed.scalar_type() != loss.scalar_type() ||
      seed.device() != loss.device() || (loss.dim() + seed.dim() != 0 && seed.sizes() != loss.sizes())) {
    seed = at::full_like(loss.detach(), weight);
    learner.seed_weight = weight;
  }
  if (learners_.size() > 1 && backward_options_.inputs.empty()) [[unlikely]] {
    // A gradient that reaches another model would be part of that model's next update.
    backward_options_.inputs = trainable(learner);
  }
  parallelism().backward(loss, seed, learner.place, backward_options_);
  if (learners_.size() > 1) [[unlikely]] {
    backward_options_.inputs.clear();
  }
}

void TorchRunnerBase::backward(const at::Tensor& loss, const std::string& name, bool retain_graph) {
  current_step("runner.backward");
  learner_ = &Learners(*this).find(name, "runner.backward");
  backward_options_ = {.inputs = trainable(*learner_), .retain_graph = retain_graph};
  backward(loss);  // open_step() puts back what one that throws leaves
  backward_options_ = {};
  learner_ = &learners_.front();
}

void TorchRunnerBase::step() {
  OpenStep& step = current_step("runner.step");
  check<StateError>(learners_.front().name.empty(), "runner.step",
                    "expected the name of a model, got none, and a runner with `models` alone; call step(name)");
  Learners(*this).step(learners_.front(), step);
}

void TorchRunnerBase::step(const std::string& name) {
  OpenStep& step = current_step("runner.step");
  Learners learners(*this);
  learners.step(learners.find(name, "runner.step"), step);
}

Learner& TorchRunnerBase::Learners::find(std::string_view name, std::string_view operation) {
  std::vector<std::string> known;
  for (Learner& learner : runner_.learners_) {
    if (learner.name == name) {
      return learner;
    }
    known.push_back(learner.name);
  }
  fail<ConfigError>(operation, "expected a model that is trained, one of [", join(known), "], got ", quote(name),
                    did_you_mean(name, known));
}

// The windows of all models lie on one line of micro-batches: those of n micro-batches close after each n-th.
void TorchRunnerBase::Learners::begin_window(Learner& learner, const OpenStep& step) {
  if (learner.begun_in == step.number) {
    return;
  }
  learner.begun_in = step.number;
  learner.backwards = 0;
  const std::int64_t accum = learner.accum_steps;
  const std::int64_t index = accum <= 1 ? 0 : step.position % accum;
  learner.place = {.index = index, .closes = index + 1 >= accum || step.last};
  learner.window.begin_micro_batch(step.normalizer, /*alone=*/index == 0 && learner.place.closes);
  learner.place.weight = learner.window.weight();
}

void TorchRunnerBase::Learners::step(Learner& learner, OpenStep& step) {
  if (step.steps++ == 0) {
    ++runner_.state_.train.micro_step;
  }
  begin_window(learner, step);
  if (learner.backwards == 0 && (step.steps == 1 || !learner.name.empty())) [[unlikely]] {
    require_gradients(learner);
  }
  learner.begun_in = -1;  // another backward is another micro-batch
  if (learner.place.closes) {
    close_window(learner, step);
  } else {
    // The next backward adds to the gradients in place.
    optim::detail::separate_gradients(learner.optimizer->param_groups());
  }
}

void TorchRunnerBase::Learners::close_window(Learner& learner, OpenStep& step) {
  if (learner.updates == 0 && learner.window.total() > 0.0) [[unlikely]] {
    check<StateError>(has_gradient(learner), "runner.step",
                      "expected gradients of the optimizer's parameters after backward(loss), got none: the loss does "
                      "not depend on them; was the model replaced after initialize(), or were gradients zeroed?");
  }
  if (runner_.alone_) [[likely]] {
    step.agreed.stop = runner_.stop_requested();
  } else {
    step.agreed = runner_.agree(learner.window.total());
    learner.window.set_total(step.agreed.weight);
  }
  runner_.parallelism().reduce_gradients(*learner.optimizer);
  runner_.learner_ = &learner;
  const bool updated = runner_.optimizer_step();
  runner_.learner_ = &runner_.learners_.front();
  if (updated) {
    ++learner.updates;
    runner_.state_.train.global_step += step.updated ? 0 : 1;
    step.updated = true;
  }
  runner_.parallelism().zero_grad(*learner.optimizer);
  learner.window.reset();
}

// Of models that have had their part of a window, but no step in its last micro-batch.
void TorchRunnerBase::Learners::close_open(OpenStep& step) {
  for (Learner& learner : runner_.learners_) {
    if (learner.window.count() > 0 && ((step.position + 1) % learner.accum_steps == 0 || step.last)) {
      close_window(learner, step);
    }
  }
}

// Where training ends before the data does, as by steps with windows of several lengths.
void TorchRunnerBase::Learners::close_last(bool counted) {
  if (!runner_.is_settled()) {
    OpenStep tail{.last = true, .updated = counted};
    close_open(tail);
    round_micro_step();
  }
}

void TorchRunnerBase::Learners::forget_windows() {
  for (Learner& learner : runner_.learners_) {
    learner.window.reset();
    runner_.parallelism().zero_grad(*learner.optimizer);
  }
}

// A short window at the end of the data counts as a whole one, so that the next begins at its beginning.
void TorchRunnerBase::Learners::round_micro_step() {
  if (const auto over = runner_.state_.train.micro_step % runner_.accum_span_; over != 0) {
    runner_.state_.train.micro_step += runner_.accum_span_ - over;
  }
}

bool TorchRunnerBase::is_settled() const {
  return open_step_ == nullptr && !in_step_event_ &&
         std::all_of(learners_.begin(), learners_.end(),
                     [](const Learner& learner) { return learner.window.count() == 0; });
}

// A step that made no gradients learns nothing, and one that made them past backward() may weigh them wrongly.
void TorchRunnerBase::Learners::require_gradients(const Learner& learner) {
  check<StateError>(learner.window.weight() == 0.0 || has_gradient(learner), "runner.step",
                    "expected a call of backward(loss) in train_step before step(), got none, and no parameter has a "
                    "gradient");
  if (learner.window.weight() != 0.0 && runner_.told_.insert("backward").second) {
    runner_.logger().warning(
        "runner.step: a train_step calls step() without backward(loss): its gradients are not weighed by the samples "
        "of the accumulation window, nor shared with other processes; call backward(loss) in place of loss.backward()");
  }
}

bool TorchRunnerBase::optimizer_step() {
  Learner& learner = *learner_;
  const double divisor = learner.window.divisor();
  if (divisor == 0.0) {
    return false;  // no micro-batch of the window had a valid target
  }
  checkpoint_manager_->maybe_wait_for_staging(std::nullopt);
  const bool skips = config().skip_nonfinite_grad;
  if (skips || learner.max_grad_value || learner.max_grad_norm) {
    for (auto& group : learner.optimizer->param_groups()) {
      clip_params_.insert(clip_params_.end(), group.params.begin(), group.params.end());
    }
    const bool skip = skips && parallelism().has_nonfinite(clip_params_);
    if (!skip && learner.max_grad_value) {
      parallelism().clip_grad_value(clip_params_, *learner.max_grad_value, divisor);
    }
    if (!skip && learner.max_grad_norm) {
      parallelism().clip_grad_norm(clip_params_, *learner.max_grad_norm, divisor);
    }
    clip_params_.clear();
    if (skip) {
      ++learner.skipped;
      ++skipped_updates_;
      return false;
    }
  }
  learner.optimizer->step(divisor);
  if (autocast_dtype_) {
    clear_autocast_cache();
  }
  if (learner.scheduler && learner.scheduler_by_step) {
    learner.scheduler->step();
  }
  return true;
}

}  // namespace danling::inline v0
