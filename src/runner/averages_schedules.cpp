// The start of SWA in a run, and its schedule.
#include <tuple>
#include <utility>

#include <danling/optim/swalr.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/averages.hpp>

namespace danling::inline v0 {

void TorchRunnerBase::Internals::Averages::prepare() {
  if (runner_.averages_ == nullptr) {
    return;
  }
  for (auto& [name, averages] : all().models) {
    if (!averages.swa) {
      continue;
    }
    auto& swa = *averages.swa;
    swa.set_start(optim::first_update(averages.swa_options, units(name)));
    // The first average follows the start.
    if (swa.has_average() ? swa.updates() <= swa.start() : swa.updates() < swa.start() && averages.swa_scheduler) {
      begin_again(name, averages);
    }
  }
  warn_never();
  begin_schedules();
}

// Restarts SWA: the run was extended, so its last part has moved.
void TorchRunnerBase::Internals::Averages::begin_again(const std::string& name, detail::AveragesOfModel& averages) {
  State empty;
  empty["weights"] = State();
  averages.swa->load_state_dict(empty);
  averages.has_statistics = false;
  runner_.logger().info(concat("swa: begins again after ", by_epochs() ? "epoch " : "step ", averages.swa->start(),
                               ", since the run is longer now"));
  if (std::exchange(averages.swa_scheduler, nullptr) == nullptr) {
    return;
  }
  for (Learner& learner : runner_.learners_) {
    if (learner.name == name) {
      restore_rates(learner, averages);
    }
  }
}

// Restores the rates without SWALR: from the schedule if it is a function of the position, else the last ones before
// SWALR.
void TorchRunnerBase::Internals::Averages::restore_rates(Learner& learner, const detail::AveragesOfModel& averages) {
  auto& groups = learner.optimizer->param_groups();
  for (std::size_t i = 0; i < groups.size() && groups.size() == averages.rates.size(); ++i) {
    groups[i].lr = averages.rates[i];
  }
  // Checkpoints have the updates of each of several models; those of a single one are the steps.
  const std::int64_t updates = runner_.learners_.size() == 1 ? runner_.state_.train.global_step : learner.updates;
  const std::int64_t position = learner.scheduler_by_step ? updates : runner_.state_.train.epoch;
  if (learner.scheduler != nullptr && !groups.empty() && learner.scheduler->rate_at(position, 0)) {
    State state = learner.scheduler->state_dict();
    state["last_epoch"] = position;
    state["_step_count"] = position + 1;
    learner.scheduler->load_state_dict(state);
  }
}

void TorchRunnerBase::Internals::Averages::begin_schedules() {
  if (runner_.averages_ == nullptr) {
    return;
  }
  for (Learner& learner : runner_.learners_) {
    const auto found = all().models.find(learner.name);
    if (found != all().models.end()) {
      bind_schedule(learner, found->second);
    }
  }
}

void TorchRunnerBase::Internals::Averages::bind_schedule(Learner& learner, detail::AveragesOfModel& averages) {
  const auto& options = averages.swa_options;
  if (!averages.swa || !options.lr || averages.swa->updates() < averages.swa->start()) {
    return;
  }
  // A run that was stopped in an evaluation has averaged its epoch, but the schedule still steps at the end of the
  // epoch.
  if (averages.swa_scheduler == nullptr && by_epochs() && averages.swa->updates() > runner_.state_.train.epoch) {
    return;
  }
  if (averages.swa_scheduler == nullptr) {
    averages.rates.clear();
    for (const auto& group : learner.optimizer->param_groups()) {
      averages.rates.push_back(group.lr);
    }
    averages.swa_scheduler = std::make_shared<optim::SWALR>(*learner.optimizer, *options.lr, options.anneal.value_or(0),
                                                            options.anneal_strategy.value_or("cos"));
  }
  if (learner.scheduler != averages.swa_scheduler) {
    averages.schedule = {learner.scheduler, learner.scheduler_by_step};
  }
  learner.scheduler = averages.swa_scheduler;
  learner.scheduler_by_step = !by_epochs();
}

// During training (a roll-back) restores the learner's schedule of that time.
void TorchRunnerBase::Internals::Averages::load_schedule(const std::string& name, detail::AveragesOfModel& averages,
                                                         const State* saved) {
  const auto previous = std::exchange(averages.swa_scheduler, nullptr);
  const State* state = saved != nullptr ? saved->find("scheduler") : nullptr;
  averages.rates.clear();
  if (const State* rates = saved != nullptr ? saved->find("rates") : nullptr) {
    for (const State& rate : rates->items()) {
      averages.rates.push_back(rate.number());
    }
  }
  const auto bound = runner_.optimizers.find(name);
  const auto& optimizer = name.empty()                        ? runner_.optimizer
                          : bound != runner_.optimizers.end() ? bound->second
                                                              : nullptr;
  if (state != nullptr && state->is_map() && averages.swa_options.lr && optimizer != nullptr &&
      !runner_.excluded_from_loading("scheduler")) {
    averages.swa_scheduler =
        std::make_shared<optim::SWALR>(*optimizer, *averages.swa_options.lr, averages.swa_options.anneal.value_or(0),
                                       averages.swa_options.anneal_strategy.value_or("cos"));
    averages.swa_scheduler->load_state_dict(*state);
  }
  for (Learner& learner : runner_.learners_) {
    if (learner.name == name && previous != nullptr && learner.scheduler == previous) {
      std::tie(learner.scheduler, learner.scheduler_by_step) = averages.schedule;
    }
    if (learner.name == name) {
      bind_schedule(learner, averages);
    }
  }
}

}  // namespace danling::inline v0
