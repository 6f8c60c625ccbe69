// Checks of the first training steps: what a train_step did besides backward() and step().
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/any.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <danling/telemetry/logger.hpp>

#include <runner/services.hpp>
#include <runner/windows.hpp>

namespace danling::inline v0 {
namespace {

using Impls = std::unordered_set<const c10::TensorImpl*>;

/// Calls `visit` with each gradient of the learner's parameters until it returns true. @return true if it did
template <class F>
bool any_gradient(const Learner& learner, const F& visit) {
  const auto& groups = learner.optimizer->param_groups();
  return std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
    return std::any_of(group.params.begin(), group.params.end(), [&](const at::Tensor& param) {
      const at::Tensor& grad = param.grad();
      return grad.defined() && visit(grad);
    });
  });
}

/// True if a gradient is not zero. Waits for the device.
bool has_value(const Learner& learner) {
  const at::NoGradGuard no_grad;
  return any_gradient(learner,
                      [](const at::Tensor& grad) { return grad.layout() != at::kStrided || grad.any().item<bool>(); });
}

/// A number that differs after most changes of the gradients. Waits for the device. LibTorch's functions change
/// gradients through data(), which leaves their versions.
double checksum_of(const Learner& learner) {
  const at::NoGradGuard no_grad;
  double out = 0.0, weight = 1.0;
  any_gradient(learner, [&](const at::Tensor& grad) {
    if (grad.layout() == at::kStrided) {
      out += weight * grad.sum(at::kDouble).item<double>();
    }
    weight += 0.25;
    return false;
  });
  return out;
}

/// The tensors that require gradients and on which the loss depends, without those in `known`.
std::vector<at::Tensor> leaves_of(const at::Tensor& loss, const Impls& known) {
  std::vector<at::Tensor> out;
  std::unordered_set<const torch::autograd::Node*> visited;
  std::vector<std::reference_wrapper<const torch::autograd::Node>> open;
  const auto add = [&](const torch::autograd::Node* node) {
    if (node != nullptr && visited.insert(node).second) {
      open.emplace_back(*node);
    }
  };
  add(loss.grad_fn().get());
  while (!open.empty()) {
    const torch::autograd::Node& node = open.back();
    open.pop_back();
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node);
        leaf != nullptr && !known.contains(leaf->variable.unsafeGetTensorImpl())) {
      out.push_back(leaf->variable);
    }
    for (const auto& edge : node.next_edges()) {
      add(edge.function.get());
    }
  }
  return out;
}

}  // namespace

bool TorchRunnerBase::Internals::Windows::keeps_gradients() const {
  const OpenStep* const step = runner_.open_step_;
  return (step == nullptr || step->repeat == nullptr) && runner_.learners_.size() == 1 && runner_.is_single_process_ &&
         !runner_.computes_shards_ && runner_.tapes_ == nullptr;
}

bool TorchRunnerBase::Internals::Windows::has_gradient(const Learner& learner) {
  return any_gradient(learner, [](const at::Tensor&) { return true; });
}

// `step()` would update a second time, with the same gradients.
void TorchRunnerBase::Internals::Windows::check_optimizer(const Learner& learner, const OpenStep& step) const {
  check<StateError>(step.repeat != nullptr || learner.optimizer->num_calls() == learner.calls_before, "runner.step",
                    "expected no other update of the model in train_step before step(), got a call of "
                    "optimizer->step(); remove it: step() calls the optimizer at the end of the accumulation window");
}

void TorchRunnerBase::Internals::Windows::note_schedules() {
  for (Learner& learner : runner_.learners_) {
    note_schedule(learner);
  }
}

// A loop of PyTorch calls it after each update. A roll-back may have gone back in the schedule.
void TorchRunnerBase::Internals::Windows::check_schedules() const {
  for (const Learner& learner : runner_.learners_) {
    check<StateError>(learner.scheduler == nullptr || learner.scheduler->step_count() <= learner.schedule_count,
                      "runner.train_step",
                      "expected only the runner to step the schedule, got a call of scheduler->step() in train_step; "
                      "remove it: step() advances the schedule after each update");
  }
}

void TorchRunnerBase::Internals::Windows::check_gradients_before(Learner& learner) {
  // Several models may share parameters; ranks, shards of a batch and recorded steps keep gradients of their own.
  if (!keeps_gradients()) {
    return;
  }
  const bool found = has_value(learner);
  if (learner.window.count() > 1) {
    check<StateError>(found || !learner.has_window_gradient, "runner.backward",
                      "expected the gradients of the micro-batches before this one, to which backward(loss) adds, got "
                      "none: does train_step call zero_grad()? Remove the call: step() clears gradients after each "
                      "update");
    learner.checks_window = !learner.has_window_gradient;
  } else if (found && runner_.warned_.insert("gradients").second) {
    runner_.logger().warning(
        "runner.backward: a parameter has a gradient before the first backward(loss) of an update, which adds to it; "
        "if train_step also calls loss.backward(), remove that call");
  }
}

// A layer or parameter that no register_module has seen computes, and is neither trained nor saved. A tensor that the
// step makes for its own purpose, such as an input that requires a gradient, is another one in the next step.
void TorchRunnerBase::Internals::Windows::check_leaves(const at::Tensor& loss, const OpenStep& step) {
  if (step.repeat != nullptr || !runner_.is_single_process_ || runner_.computes_shards_) {
    return;
  }
  Impls known;
  const auto add = [&](const ModelHandle& model) {
    for (const auto& [name, parameter] : model.named_parameters()) {
      known.insert(parameter.unsafeGetTensorImpl());
    }
  };
  if (runner_.model) {
    add(runner_.model);
  }
  for (const auto& [name, model] : runner_.models) {
    add(model);
  }
  for (const Learner& learner : runner_.learners_) {
    for (const auto& group : learner.optimizer->param_groups()) {
      for (const at::Tensor& parameter : group.params) {
        known.insert(parameter.unsafeGetTensorImpl());
      }
    }
  }
  std::vector<std::string> shapes;
  for (const at::Tensor& leaf : leaves_of(loss, known)) {
    const auto is_same = [&](const auto& other) { return other._unsafe_get_target() == leaf.unsafeGetTensorImpl(); };
    if (step.number > 1 &&
        std::any_of(runner_.services().foreign_leaves.begin(), runner_.services().foreign_leaves.end(), is_same)) {
      shapes.push_back(concat("[", join(leaf.sizes()), "]"));
    }
    if (step.number == 1) {
      runner_.services().foreign_leaves.emplace_back(leaf.getIntrusivePtr());
    }
  }
  if (!shapes.empty() && runner_.warned_.insert("leaves").second) {
    runner_.logger().warning(
        concat("the loss depends on tensors that require gradients and are in no model and no "
               "optimizer, of shape ",
               join(shapes),
               ": they are neither trained nor saved; register them in the model "
               "(register_module, register_parameter), or call requires_grad_(false)"));
  }
}

// Between the micro-batches of a window, and with a loss scale, gradients are not those of the update.
void TorchRunnerBase::Internals::Windows::note_gradients(Learner& learner) const {
  learner.has_window_gradient =
      learner.checks_window && learner.accum_steps > 1 && keeps_gradients() && has_value(learner);
  const bool summed = learner.accum_steps > 1 || learner.scaler != nullptr;
  learner.gradients_after.reset();
  if (summed && keeps_gradients()) {
    learner.gradients_after = checksum_of(learner);
  }
}

void TorchRunnerBase::Internals::Windows::check_gradients_kept(const Learner& learner) {
  if (!learner.gradients_after) {
    return;
  }
  const double now = checksum_of(learner);
  if (std::isfinite(now) && now != *learner.gradients_after && runner_.warned_.insert("gradients changed").second) {
    runner_.logger().warning(
        concat("runner.step: train_step changes gradients between backward(loss) and step(), where they are ",
               learner.scaler != nullptr ? "scaled and " : "",
               "sums over the micro-batches so far, not those of the update; to clip set optim.max_grad_norm or "
               "optim.max_grad_value, to change them otherwise use on_gradients of a callback"));
  }
}

void TorchRunnerBase::Internals::Windows::check_not_zero(const Learner& learner) {
  if (!runner_.is_single_process_ || runner_.computes_shards_ || runner_.tapes_ != nullptr || learner.skipped > 0) {
    return;
  }
  if (!has_value(learner) && runner_.warned_.insert(concat("zero ", learner.name)).second) {
    runner_.logger().warning(concat("all gradients of the first update", learner.name.empty() ? "" : " of model ",
                                    learner.name.empty() ? std::string() : quote(learner.name),
                                    " are zero: nothing is trained; does the loss fit the output (a softmax over one "
                                    "class is constant), and does it depend on the prediction?"));
  }
}

// A step without gradients trains nothing; gradients computed without backward() may have wrong weights.
void TorchRunnerBase::Internals::Windows::require_gradients(const Learner& learner) {
  check<StateError>(learner.window.weight() == 0.0 || has_gradient(learner), "runner.step",
                    "expected a call of backward(loss) in train_step before step(), got none, and no parameter has a "
                    "gradient");
  check<StateError>(learner.window.weight() == 0.0 || learner.scaler == nullptr, "runner.step",
                    "expected a call of backward(loss) in train_step before step(), which scales the loss (precision: "
                    "fp16), got gradients without one");
  check<StateError>(
      learner.window.weight() == 0.0 || runner_.is_single_process_ || !runner_.parallelism().sums_in_backward(),
      "runner.step",
      "expected a call of backward(loss) in train_step before step(), which sums gradients over "
      "processes, got gradients without one; call it in place of loss.backward()");
  if (learner.window.weight() != 0.0 && runner_.warned_.insert("backward").second) {
    runner_.logger().warning(
        "runner.step: a train_step calls step() without backward(loss): its gradients are not weighted by the samples "
        "of the accumulation window, nor reduced over processes; call backward(loss) in place of loss.backward()");
  }
}

}  // namespace danling::inline v0
