// The path of one step: contexts, backward, the end of the window, the update.
#include <algorithm>
#include <iterator>
#include <limits>

#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <danling/checkpoint/manager.hpp>
#include <danling/runner/torch_runner_base.hpp>

#include <runner/gradients.hpp>
#include <runner/loss_policy.hpp>
#include <runner/loss_probe.hpp>
#include <runner/repeated_step.hpp>
#include <runner/services.hpp>
#include <runner/step_tapes.hpp>
#include <runner/windows.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0 {
namespace {

/// The value nearest to `weight` in that dtype; float64 is exact.
double rounded_to(at::ScalarType dtype, double weight) {
  const auto narrow = static_cast<float>(weight);
  switch (dtype) {
    case at::kBFloat16:
      return static_cast<float>(c10::BFloat16(narrow));
    case at::kHalf:
      // Over 32,000 times the first micro-batch: clamped, so that the divisor is finite.
      return static_cast<float>(std::min(c10::Half(narrow), std::numeric_limits<c10::Half>::max()));
    case at::kFloat:
      return narrow;
    default:
      return weight;
  }
}

/// Parameters that receive gradients in the backward pass of one of several models.
std::vector<at::Tensor> trainable(const Learner& learner) {
  std::vector<at::Tensor> out;
  for (const auto& group : learner.optimizer->param_groups()) {
    std::copy_if(group.params.begin(), group.params.end(), std::back_inserter(out),
                 [](const at::Tensor& param) { return param.requires_grad(); });
  }
  return out;
}

}  // namespace

PrecisionContext TorchRunnerBase::forward_context() { return {device().type(), autocast_dtype_, profiled_}; }

PrecisionContext TorchRunnerBase::train_context() { return {device().type(), autocast_dtype_, profiled_}; }

TorchRunnerBase::Internals::OpenStep& TorchRunnerBase::current_step(std::string_view operation) {
  if (open_step_ == nullptr) [[unlikely]] {
    fail<StateError>(operation, "expected a call from train_step, got one outside of a training step",
                     mode_ == RunnerMode::train ? "" : concat(", in mode ", to_string(mode_)));
  }
  return *open_step_;
}

/// Everything before the pass. @return true if there is a pass
[[gnu::always_inline]] inline bool TorchRunnerBase::begin_backward(const at::Tensor& loss) {
  const Internals::OpenStep& step = current_step("runner.backward");
  check<StateError>(loss.defined(), "runner.backward", "expected a loss, got an undefined tensor");
  if (loss.dim() != 0 && loss.numel() != 1) [[unlikely]] {
    fail<StateError>("runner.backward", "expected a loss of one element, got shape [", join(loss.sizes()),
                     "]; reduce it by its mean");
  }
  Learner& learner = *learner_;
  check<StateError>(learner.name.empty() || step.names_model, "runner.backward",
                    "expected the name of a model, got none in a runner with only `models`; call backward(loss, name)");
  Internals::Windows(*this).begin(learner, step);
  if (learner.backwards++ == 0) {
    if (step.number <= Internals::Windows::num_checked || (learner.checks_window && learner.accum_steps > 1))
        [[unlikely]] {
      Internals::Windows(*this).check_gradients_before(learner);
    }
    if (step.number <= Internals::Windows::num_checked) [[unlikely]] {
      Internals::Windows(*this).check_leaves(loss, step);
    }
  }
  double weight = learner.window.weight();
  if (weight == 0.0 && (is_single_process_ || !parallelism().needs_every_backward())) {
    return false;  // this micro-batch has no valid target
  }
  if (step.repeat != nullptr) [[unlikely]] {
    at::Tensor& sum = step.repeat->loss;
    sum = sum.defined() ? sum.add(loss.detach()) : loss.detach().clone();
  }
  if (learner.scaler != nullptr && !is_single_process_) [[unlikely]] {
    parallelism().set_loss_scale(*learner.optimizer, learner.scaler->factor());
  }
  if (weight != 1.0) {
    weight = rounded_to(loss.scalar_type(), weight);
    learner.window.round_weight(weight);
  }
  // Starting from the weight is free; a node `loss * weight` costs 6 microseconds.
  at::Tensor& seed = learner.seed;
  if (!seed.defined() || learner.seed_weight != weight || seed.scalar_type() != loss.scalar_type() ||
      seed.device() != loss.device() || (loss.dim() + seed.dim() != 0 && seed.sizes() != loss.sizes()) ||
      (learner.scaler != nullptr && !learner.seed_scale.is_same(learner.scaler->factor()))) {
    learner.seed_weight = weight;
    if (learner.scaler == nullptr) {
      seed = at::full_like(loss.detach(), weight);
    } else {
      learner.seed_scale = learner.scaler->factor();
      seed = tensors::moved(learner.seed_scale, loss.device()).mul(weight).to(loss.scalar_type()).expand(loss.sizes());
    }
  }
  if (learner.watches_loss && weight != 0.0 && !repeats_step()) [[unlikely]] {
    Internals::LossPolicy(*this).add_loss(learner, loss, weight);
  }
  return true;
}

at::Tensor TorchRunnerBase::begin_manual_backward() {
  check<StateError>(!learner_->watches_loss, "runner.backward",
                    "expected no policy that reads losses before an update (spike.action, on_nonfinite: stop or "
                    "rollback) with a step that computes its gradients itself, got one");
  const at::Tensor like = at::zeros({}, at::TensorOptions(device()).dtype(input_dtype_.value_or(at::kFloat)));
  return begin_backward(like) ? learner_->seed : at::zeros_like(like);
}

[[gnu::always_inline]] inline void TorchRunnerBase::run_backward(const at::Tensor& loss) {
  Learner& learner = *learner_;
  if (learners_.size() > 1 && backward_options_.inputs.empty()) [[unlikely]] {
    // A gradient for another model would enter that model's next update.
    backward_options_.inputs = trainable(learner);
  }
  {
    const detail::NamedRange range(profiled_, "danling.backward");
    try {
      parallelism().backward(loss, learner.seed, learner.place, backward_options_);
    } catch (const c10::Error&) {
      if (loss.requires_grad()) {
        throw;
      }
      fail<StateError>("runner.backward",
                       "expected a loss that depends on a trainable parameter, got one without a gradient: all "
                       "parameters are frozen, the prediction was detached or computed without gradients, or the loss "
                       "was built from .item()");
    }
  }
  if (learners_.size() > 1) [[unlikely]] {
    backward_options_.inputs.clear();
  }
  if (open_step_->number <= Internals::Windows::num_checked || (learner.checks_window && learner.accum_steps > 1))
      [[unlikely]] {
    Internals::Windows(*this).note_gradients(learner);
  }
}

void TorchRunnerBase::backward(const at::Tensor& loss) {
  if (tapes_ != nullptr && tapes_->observing() != nullptr) [[unlikely]] {
    observe_backward(loss);
  } else if (begin_backward(loss)) {
    run_backward(loss);
  }
}

/// Records the pass; replays run the code before it natively.
[[gnu::noinline]] void TorchRunnerBase::observe_backward(const at::Tensor& loss) {
  tape::StepObserver& observer = *tapes_->observing();
  bool runs = false;
  {
    const tape::NoRecordGuard suspended;
    runs = begin_backward(loss);
  }
  observer.host_call("backward", {loss}, [this, name = learner_->name](const tape::Tensors& now) {
    Internals::OpenStep& step = current_step("runner.backward");
    learner_ = &Internals::Windows(*this).find(name, "runner.backward");
    step.names_model = !name.empty();
    begin_backward(now.front());
    parallelism().begin_backward(learner_->place);
    step.names_model = false;
    learner_ = &learners_.front();
  });
  if (!runs) {
    observer.mark_unrecordable("a micro-batch has no valid target");
    return;
  }
  observer.begin_backward();
  run_backward(loss);
  observer.end_backward();
}

void TorchRunnerBase::backward(const at::Tensor& loss, const std::string& name, bool retain_graph) {
  Internals::OpenStep& step = current_step("runner.backward");
  learner_ = &Internals::Windows(*this).find(name, "runner.backward");
  backward_options_ = {.inputs = trainable(*learner_), .retain_graph = retain_graph};
  if (loss_probe_ != nullptr && loss_probe_->model == name) [[unlikely]] {
    loss_probe_->add(loss);
  }
  step.names_model = true;
  backward(loss);  // after an exception the next step begins with new options
  step.names_model = false;
  backward_options_ = {};
  learner_ = &learners_.front();
}

void TorchRunnerBase::step() {
  Internals::OpenStep& step = current_step("runner.step");
  if (step.repeat != nullptr && step.repeat->again) [[unlikely]] {
    return;
  }
  check<StateError>(learners_.front().name.empty(), "runner.step",
                    "expected the name of a model, got none in a runner with only `models`; call step(name)");
  if (tapes_ != nullptr && tapes_->observing() != nullptr) [[unlikely]] {
    observe_step("");
  } else {
    Internals::Windows(*this).step(learners_.front(), step);
  }
}

void TorchRunnerBase::step(const std::string& name) {
  Internals::OpenStep& step = current_step("runner.step");
  if (tapes_ != nullptr && tapes_->observing() != nullptr) [[unlikely]] {
    observe_step(name);
  } else {
    Internals::Windows windows(*this);
    windows.step(windows.find(name, "runner.step"), step);
  }
}

bool TorchRunnerBase::repeats_step() const {
  return open_step_ != nullptr && open_step_->repeat != nullptr && open_step_->repeat->again;
}

bool TorchRunnerBase::is_settled() const { return !in_step_event_ && is_between_updates(); }

bool TorchRunnerBase::is_between_updates() const {
  if (joins_updates_) {  // the same on all ranks, also on one that has ended its pass
    return open_step_ == nullptr && state_.train.micro_step % accum_span_ == 0;
  }
  return open_step_ == nullptr && std::all_of(learners_.begin(), learners_.end(),
                                              [](const Learner& learner) { return learner.window.count() == 0; });
}

bool TorchRunnerBase::optimizer_step() {
  Learner& learner = *learner_;
  const double divisor = learner.window.divisor();
  if (divisor == 0.0) {  // no micro-batch of the window had a valid target
    if (learner.watches_loss && !is_single_process_) {
      Internals::LossPolicy(*this).judge(learner, {});  // other ranks exchange their losses
    }
    return false;
  }
  checkpoint_manager_->maybe_wait_for_staging(std::nullopt);
  if (!learner.prepares_gradients && !learner.repeats_step) {
    learner.optimizer->step(divisor);
  } else if (!Internals::Gradients(*this).update(learner, divisor)) {
    return false;
  }
  if (autocast_dtype_) {
    clear_autocast_cache();
  }
  if (learner.scheduler && learner.scheduler_by_step) {
    learner.scheduler->step();
    ++learner.schedule_count;
  }
  return true;
}

}  // namespace danling::inline v0
