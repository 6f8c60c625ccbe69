#include <runner/gradients.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/zeros.h>

#include <danling/optim/clip.hpp>
#include <danling/runner/parallelism.hpp>

#include <optim/memory.hpp>
#include <optim/params_of.hpp>
#include <runner/gradient_stats.hpp>
#include <runner/kept_buffers.hpp>
#include <runner/loss_policy.hpp>
#include <runner/repeated_step.hpp>
#include <runner/sharded_parallel.hpp>

namespace danling::inline v0 {
namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

// True if the policies require that a skipped batch changes nothing. A roll-back restores everything anyway.
bool leaves_out(const RunnerConfig& config) {
  const auto leaves = [](std::string_view action) { return action == "skip" || action == "stop"; };
  return config.skip_nonfinite_grad || leaves(config.on_nonfinite) || leaves(config.spike.action.value_or(""));
}

bool is_set(const at::Tensor& flag) { return flag.defined() && flag.item().toDouble() != 0; }

// torch.nn.utils clips by the computed norm: an infinite norm results in zeros and NaN, a NaN norm in NaN.
void scale_by_nonfinite(const std::vector<at::Tensor>& params, double max_norm, double norm) {
  if (std::isfinite(norm)) {
    return;  // clipping by value has made the gradients finite
  }
  const at::NoGradGuard no_grad;
  optim::detail::separate_gradients(params);
  for (const auto& param : params) {
    if (param.grad().defined()) {
      param.mutable_grad().mul_(max_norm / norm);
    }
  }
}

}  // namespace

void TorchRunnerBase::Internals::Gradients::configure(Learner& learner) const {
  const RunnerConfig& config = runner_.config();
  learner.skips_nonfinite = learner.scaler != nullptr || config.skip_nonfinite_grad || config.on_nonfinite == "skip";
  learner.watches_loss = LossPolicy::judges(config);
  if (leaves_out(config)) {
    const ModelHandle& model = learner.name.empty() ? runner_.model : runner_.models.at(learner.name);
    const auto buffers = std::make_shared<detail::BufferBackup>(model);
    learner.buffers = buffers->empty() ? nullptr : buffers;
  }
  learner.reads_flags_late = !runner_.device().is_cpu();
  if (config.log_grad_norm || config.log_noise_scale) {
    const Parallelism& parallelism = runner_.parallelism();
    const bool by_ranks =
        parallelism.sums_gradients() && !parallelism.group().alone() && !parallelism.sums_in_backward();
    check<ConfigError>(!config.log_noise_scale || learner.accum_steps > 1 || by_ranks, "runner.train",
                       "expected accum_steps of at least 2", learner.name.empty() ? "" : " for model ",
                       learner.name.empty() ? "" : quote(learner.name),
                       " with log_noise_scale, which compares the gradients of a micro-batch with those of its window, "
                       "got ",
                       learner.accum_steps);
    check<ConfigError>(!config.log_noise_scale || dynamic_cast<const detail::ShardedParallel*>(&parallelism) == nullptr,
                       "runner.train", "expected stack: ddp with log_noise_scale, got ", parallelism.name(),
                       ", where no rank has the gradients of a part of the batch");
    const auto before = std::find_if(runner_.learners_.begin(), runner_.learners_.end(),
                                     [&](const Learner& other) { return other.name == learner.name; });
    learner.stats = before != runner_.learners_.end() && before->stats != nullptr
                        ? before->stats
                        : std::make_shared<detail::GradientStats>(config.log_grad_norm, config.log_noise_scale);
    restore_stats(learner);
  }
  learner.prepares_gradients = learner.skips_nonfinite || learner.watches_loss || learner.stats != nullptr ||
                               learner.max_grad_norm || learner.max_grad_value;
}

void TorchRunnerBase::Internals::Gradients::restore_stats(Learner& learner) const {
  const State* saved = runner_.saved_gradients_.is_map() ? runner_.saved_gradients_.find(learner.name) : nullptr;
  if (learner.stats != nullptr && saved != nullptr) {
    learner.stats->load_state_dict(*saved);
    runner_.saved_gradients_.map().erase(learner.name);
  }
}

void TorchRunnerBase::Internals::Gradients::begin_pass() const {
  for (const Learner& learner : runner_.learners_) {
    if (learner.stats != nullptr) {
      learner.stats->reset_mean();
    }
  }
}

bool TorchRunnerBase::Internals::Gradients::update(Learner& learner, double divisor) {
  optim::GradScale scale{.divisor = divisor};
  if (learner.prepares_gradients && !prepare(scale)) {
    return false;
  }
  if (learner.repeats_step) {
    StepRepeater(runner_).update(learner);
  } else if (scale.scale.defined() || scale.found_inf.defined()) {
    learner.optimizer->step(scale);
  } else {
    learner.optimizer->step(scale.divisor);
  }
  return true;
}

bool TorchRunnerBase::Internals::Gradients::prepare(optim::GradScale& scale) {
  Learner& learner = runner_.learner();
  std::vector<at::Tensor>& params = runner_.clip_params_;
  params.clear();
  for (auto& group : learner.optimizer->param_groups()) {
    params.insert(params.end(), group.params.begin(), group.params.end());
  }
  if (learner.scaler != nullptr) {
    scale.scale = learner.scaler->factor();
  }
  at::Tensor norm;
  clip(scale, norm);
  if (learner.watches_loss && LossPolicy(runner_).judge(learner, scale.found_inf)) {
    skip(learner);
    params.clear();
    return false;
  }
  if (!learner.skips_nonfinite) {  // as in DanLing: updates anyway, whatever happens to the parameters
    if (learner.max_grad_norm && scale.found_inf.defined() && scale.found_inf.is_cpu() && is_set(scale.found_inf)) {
      scale_by_nonfinite(params, *learner.max_grad_norm, norm.item().toDouble());
    }
    scale.found_inf = at::Tensor();
  }
  params.clear();
  return !skip_on_host(scale);
}

// At most one pass over the gradients, besides clipping by value: the norm is not finite if a gradient is not.
// Statistics use the gradients before both kinds of clipping.
void TorchRunnerBase::Internals::Gradients::clip(optim::GradScale& scale, at::Tensor& norm) {
  Learner& learner = runner_.learner();
  Parallelism& parallelism = runner_.parallelism();
  const std::vector<at::Tensor>& params = runner_.clip_params_;
  const bool checks = learner.skips_nonfinite || learner.watches_loss;
  at::Tensor unclipped;
  if (learner.max_grad_value) {
    if (learner.stats != nullptr) {
      optim::GradScale unchanged = scale;
      unclipped = parallelism.clip_grad_norm(params, unlimited, unchanged);
    }
    if (checks) {
      scale.found_inf = parallelism.nonfinite_flag(params);  // clamping hides infinities
    }
    if (learner.scaler != nullptr) {
      learner.scaler->unscale(params);
      scale.scale = at::Tensor();
    }
    parallelism.clip_grad_value(params, *learner.max_grad_value, scale.divisor);
  }
  if (learner.max_grad_norm || (learner.stats != nullptr && !unclipped.defined())) {
    optim::GradScale clipped = scale;
    norm = parallelism.clip_grad_norm(params, learner.max_grad_norm.value_or(unlimited), clipped);
    if (learner.max_grad_norm) {
      scale = clipped;
    } else if (!scale.found_inf.defined()) {
      scale.found_inf = clipped.found_inf;
    }
  } else if (checks && !scale.found_inf.defined()) {
    scale.found_inf = parallelism.nonfinite_flag(params);
  }
  if (learner.stats != nullptr) {
    learner.stats->add(unclipped.defined() ? unclipped : norm, learner.window.total());
  }
}

// On a device the optimizer reads the flag; the counters are corrected later.
bool TorchRunnerBase::Internals::Gradients::skip_on_host(optim::GradScale& scale) {
  Learner& learner = runner_.learner();
  if (learner.scaler != nullptr) {
    learner.scaler->update(scale.found_inf.defined() ? scale.found_inf
                                                     : at::zeros({}, learner.scaler->factor().options()));
  }
  if (scale.scale.defined() && scale.scale.is_cpu()) {
    scale.divisor *= scale.scale.item().toDouble();
    scale.scale = at::Tensor();
  }
  if (scale.found_inf.defined() && learner.reads_flags_late) {
    learner.unread_flag = scale.found_inf.detach().reshape({}).ne(0);
    if (learner.buffers != nullptr) {
      learner.buffers->restore(learner.unread_flag);
    }
    return false;
  }
  if (is_set(std::exchange(scale.found_inf, at::Tensor()))) {
    skip(learner);
    return true;
  }
  return false;
}

void TorchRunnerBase::Internals::Gradients::skip(Learner& learner) const {
  ++learner.skipped;
  ++runner_.skipped_updates_;
  if (learner.buffers != nullptr) {
    learner.buffers->restore();
  }
}

void TorchRunnerBase::Internals::Gradients::record_part(Learner& learner, double weight) const {
  if (weight > 0) {
    const std::vector<at::Tensor> params = optim::detail::params_of(*learner.optimizer);
    // The weight is in samples, the gradients in units of the window.
    optim::GradScale scale{.divisor = weight * learner.window.divisor() / learner.window.total()};
    if (learner.scaler != nullptr) {
      scale.scale = learner.scaler->factor();
    }
    learner.stats->add_part(runner_.parallelism().clip_grad_norm(params, unlimited, scale), weight);
  }
}

void TorchRunnerBase::Internals::Gradients::add_stats(Result& result, bool averages) const {
  for (const Learner& learner : runner_.learners_) {
    if (learner.stats == nullptr) {
      continue;
    }
    const auto set = [&](const char* name, std::optional<double> value) {
      if (value) {
        result.set(learner.name.empty() ? std::string(name) : concat(name, "_", learner.name), *value);
      }
    };
    const detail::GradientStats& stats = *learner.stats;
    set("grad_norm", averages ? stats.mean_norm() : stats.last_norm());
    set("noise_scale", stats.noise_scale());
  }
}

bool TorchRunnerBase::Internals::Gradients::adapts_scale() const {
  return std::any_of(runner_.learners_.begin(), runner_.learners_.end(), [](const Learner& learner) {
    if (learner.scaler == nullptr) {
      return false;
    }
    const double scale = learner.scaler->get_scale();
    const double next = static_cast<float>(scale * *learner.scaler->options().backoff_factor);
    return scale >= 1 && next < scale;  // a fixed scale does not adapt
  });
}

void TorchRunnerBase::Internals::Gradients::note_flag(Learner& learner, OpenStep& step) const {
  const at::Tensor flag = std::exchange(learner.unread_flag, at::Tensor());
  if (!flag.defined()) {
    step.surely_updated = true;
    return;
  }
  learner.unread_skips = learner.unread_skips.defined() ? learner.unread_skips.add(flag) : flag.to(at::kLong);
  step.skipped = step.skipped.defined() ? at::logical_and(step.skipped, flag) : flag;
}

void TorchRunnerBase::Internals::Gradients::count_flags(const OpenStep& step) const {
  if (step.skipped.defined() && !step.surely_updated) {
    at::Tensor& unread = runner_.unread_steps_;
    unread = unread.defined() ? unread.add(step.skipped) : step.skipped.to(at::kLong);
  }
}

std::int64_t TorchRunnerBase::Internals::Gradients::settle() const {
  for (Learner& learner : runner_.learners_) {
    if (const at::Tensor unread = std::exchange(learner.unread_skips, at::Tensor()); unread.defined()) {
      const std::int64_t skipped = unread.item().toLong();
      learner.updates -= skipped;
      learner.skipped += skipped;
      runner_.skipped_updates_ += skipped;
    }
  }
  const at::Tensor unread = std::exchange(runner_.unread_steps_, at::Tensor());
  const std::int64_t steps = unread.defined() ? unread.item().toLong() : 0;
  runner_.state_.train.global_step -= steps;
  return steps;
}

void TorchRunnerBase::synchronize_counters() { Internals::Gradients(*this).settle(); }

}  // namespace danling::inline v0
