// The roll-back of a policy, and its state in checkpoints.
#include <ATen/ops/tensor.h>

#include <danling/checkpoint/manager.hpp>

#include <runner/loss_policy.hpp>
#include <runner/restorer.hpp>
#include <runner/services.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0 {

void TorchRunnerBase::Internals::LossPolicy::roll_back() {
  const auto passed_over = state_.passed_over;
  const std::int64_t rollbacks = state_.rollbacks;
  runner_.services().deferred_saves.clear();
  runner_.checkpoint_manager().wait(runner_.config().checkpoint.wait_timeout);
  drop_beginning();
  runner_.training_ = false;  // load_state_dict refuses a loop in progress
  Restorer(runner_).roll_back(state_.initial);
  runner_.training_ = true;
  state_.passed_over = passed_over;
  state_.rollbacks = rollbacks;
  state_.first = runner_.state_.train.micro_step;
  runner_.requests_.ended = std::exchange(runner_.loop_.ended, std::nullopt);
}

State TorchRunnerBase::Internals::LossPolicy::save() const {
  State out;
  State::List ranges;
  for (const auto& [first, end] : state_.passed_over) {
    ranges.push_back(State::List{State(first), State(end)});
  }
  out["passed_over"] = std::move(ranges);
  out["rollbacks"] = state_.rollbacks;
  State::Map losses;
  for (const auto& [model, values] : state_.losses) {
    losses.set(model, at::tensor(std::vector<double>(values.begin(), values.end()), at::kDouble));
  }
  out["losses"] = std::move(losses);
  return out;
}

void TorchRunnerBase::Internals::LossPolicy::load(const State* state) {
  detail::LossPolicyState kept;
  kept.initial = std::move(state_.initial);
  kept.saves = state_.saves;
  kept.has_trained = state_.has_trained;
  state_ = std::move(kept);
  if (state == nullptr) {
    return;
  }
  for (const State& range : state->at("passed_over").list()) {
    state_.passed_over.emplace_back(range.items()[0].integer(), range.items()[1].integer());
  }
  state_.rollbacks = state->at("rollbacks").integer();
  for (const auto& [model, values] : state->at("losses").map()) {
    const at::Tensor numbers = tensors::raw(values.tensor());
    const auto* first = numbers.const_data_ptr<double>();
    state_.losses[model.string()].assign(first, first + numbers.numel());
  }
}

}  // namespace danling::inline v0
