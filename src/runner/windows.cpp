#include <runner/windows.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/detail/suggest.hpp>
#include <danling/telemetry/logger.hpp>

#include <optim/memory.hpp>
#include <runner/adapters.hpp>
#include <runner/agreement.hpp>
#include <runner/averages.hpp>
#include <runner/gradient_stats.hpp>
#include <runner/gradients.hpp>
#include <runner/loss_policy.hpp>

namespace danling::inline v0 {
Learner& TorchRunnerBase::Internals::Windows::find(std::string_view name, std::string_view operation) {
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

void TorchRunnerBase::Internals::Windows::begin(Learner& learner, const OpenStep& step) {
  if (learner.begun_in == step.number) {
    return;
  }
  learner.begun_in = step.number;
  learner.backwards = 0;
  learner.gradients_after.reset();
  if (step.number <= num_checked) [[unlikely]] {
    learner.calls_before = learner.optimizer->num_calls();
    note_schedule(learner);
  }
  const std::int64_t accum = learner.accum_steps;
  const std::int64_t index = accum <= 1 ? step.shard : step.position % accum;
  learner.place = {.index = index, .closes = accum <= 1 ? index + 1 >= step.shards : index + 1 >= accum || step.last};
  learner.window.begin_micro_batch(step.normalizer, /*alone=*/index == 0 && learner.place.closes);
  learner.place.weight = learner.window.weight();
}

void TorchRunnerBase::Internals::Windows::step(Learner& learner, OpenStep& step) {
  if (step.steps++ == 0 && step.shard == 0) {
    ++runner_.state_.train.micro_step;
  }
  begin(learner, step);
  if (step.number <= num_checked) [[unlikely]] {
    check_optimizer(learner, step);
    check_gradients_kept(learner);
  }
  if (learner.backwards == 0 && (step.steps == 1 || !learner.name.empty())) [[unlikely]] {
    require_gradients(learner);
  }
  learner.begun_in = -1;  // the next backward starts another micro-batch
  if (runner_.computes_shards_) [[unlikely]] {
    optim::detail::separate_gradients(learner.optimizer->param_groups());
    runner_.parallelism().end_shard(*learner.optimizer);
  }
  if (learner.place.closes) {
    close(learner, step);
  } else {
    if (learner.stats != nullptr && learner.stats->noise && learner.place.index == 0) {
      Gradients(runner_).record_part(learner);
    }
    // The next backward adds to the gradients in place.
    optim::detail::separate_gradients(learner.optimizer->param_groups());
  }
}

void TorchRunnerBase::Internals::Windows::close(Learner& learner, OpenStep& step) {
  const double own_weight = learner.window.total();
  if (runner_.is_single_process_) [[likely]] {
    if (runner_.stop_requested()) [[unlikely]] {
      step.agreed = Agreement(runner_).packet_of_stop();
    }
  } else {
    step.agreed = Agreement(runner_).agree({.weight = own_weight,
                                            .unit = learner.window.summed_unit(),
                                            .learner = &learner - runner_.learners_.data(),
                                            .micro_step = next_position(step),
                                            .iteration = runner_.loop_.iteration});
  }
  update(learner, step, own_weight);
}

void TorchRunnerBase::Internals::Windows::take_part(Learner& learner, OpenStep& step) {
  update(learner, step, learner.window.total());
}

std::int64_t TorchRunnerBase::Internals::Windows::next_position(const OpenStep& step) const {
  const std::int64_t next = runner_.state_.train.micro_step;
  const std::int64_t over = next % runner_.accum_span_;
  return step.last && over != 0 ? next + runner_.accum_span_ - over : next;
}

double TorchRunnerBase::Internals::Windows::open_weight() const {
  check<StateError>(runner_.learners_.size() == 1 || runner_.is_settled(), "runner.train",
                    "expected the same number of batches in every process while windows of several models are open, "
                    "got a process without more; set dataloader.drop_last");
  return runner_.learners_.front().window.total();
}

void TorchRunnerBase::Internals::Windows::update(Learner& learner, OpenStep& step, double own_weight) {
  if (!runner_.is_single_process_) {
    learner.window.set_total(step.agreed.weight, step.agreed.unit);
  }
  if (learner.stats != nullptr && learner.stats->noise && learner.accum_steps == 1 &&
      runner_.parallelism().sums_gradients()) {
    Gradients(runner_).record_part(learner, own_weight);
  }
  if (learner.scaler != nullptr) {
    runner_.parallelism().set_loss_scale(*learner.optimizer, learner.scaler->factor());
  }
  {
    const detail::NamedRange range(runner_.profiled_ && !runner_.is_single_process_, "danling.reduce");
    runner_.parallelism().reduce_gradients(*learner.optimizer);
  }
  if (learner.updates == 0 && learner.window.total() > 0.0) [[unlikely]] {
    check<StateError>(has_gradient(learner), "runner.step",
                      "expected gradients of the optimizer's parameters after backward(loss), got none: the loss does "
                      "not depend on them; was the model replaced after initialize(), or were gradients zeroed?");
    check_not_zero(learner);
  }
  const detail::NamedRange range(runner_.profiled_, "danling.optimizer");
  runner_.learner_ = &learner;
  if (runner_.callbacks_.has_gradient_listeners()) [[unlikely]] {
    const at::Tensor scale = learner.scaler != nullptr ? learner.scaler->factor() : at::Tensor();
    runner_.callbacks_.notify_gradients({{runner_}, learner.name, learner.window.divisor(), scale});
  }
  const bool updated = runner_.optimizer_step();
  runner_.learner_ = &runner_.learners_.front();
  if (updated) {
    if (runner_.train_timeout_) [[unlikely]] {
      runner_.parallelism().set_timeout(*std::exchange(runner_.train_timeout_, std::nullopt));
    }
    ++learner.updates;
    if (runner_.has_adapters_) [[unlikely]] {
      Adapters(runner_).update(learner.name);
    }
    if (runner_.averages_ != nullptr) [[unlikely]] {
      Averages(runner_).update(learner);
    }
    runner_.state_.train.global_step += step.updated ? 0 : 1;
    step.updated = true;
    runner_.updated_at_ = runner_.state_.train.micro_step;
    if (learner.reads_flags_late) {
      Gradients(runner_).note_flag(learner, step);
    } else {
      step.surely_updated = true;
    }
  }
  runner_.parallelism().zero_grad(*learner.optimizer);
  learner.window.reset();
  learner.has_window_gradient = false;
}

void TorchRunnerBase::Internals::Windows::close_open(OpenStep& step) {
  for (Learner& learner : runner_.learners_) {
    // A rank that has ended its pass may have nothing in a window that others have opened.
    const bool open = learner.window.count() > 0 || (runner_.joins_updates_ && step.last &&
                                                     runner_.state_.train.micro_step % learner.accum_steps != 0);
    if (open && ((step.position + 1) % learner.accum_steps == 0 || step.last)) {
      close(learner, step);
    }
  }
}

void TorchRunnerBase::Internals::Windows::close_last() {
  if (!runner_.is_settled()) {
    const bool counted = runner_.updated_at_ == runner_.state_.train.micro_step;  // with another model or rank
    OpenStep tail{.last = true, .updated = counted, .surely_updated = counted};
    close_open(tail);
    Gradients(runner_).count_flags(tail);
    align();
    if (runner_.loss_policy_ != nullptr) {
      LossPolicy(runner_).settle();
    }
  }
}

void TorchRunnerBase::Internals::Windows::drop() {
  runner_.updated_at_ = -1;
  for (Learner& learner : runner_.learners_) {
    learner.window.reset();
    learner.has_window_gradient = false;
    runner_.parallelism().drop_gradients(*learner.optimizer);
  }
  if (runner_.loss_policy_ != nullptr) {
    LossPolicy(runner_).reset();
  }
}

void TorchRunnerBase::Internals::Windows::align() {
  if (const auto over = runner_.state_.train.micro_step % runner_.accum_span_; over != 0) {
    runner_.state_.train.micro_step += runner_.accum_span_ - over;
  }
}

}  // namespace danling::inline v0
