#include <runner/snapshot.hpp>

#include <tuple>
#include <utility>

#include <danling/runner/early_stopping.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/gradient_stats.hpp>
#include <runner/gradients.hpp>
#include <runner/loss_policy.hpp>
#include <runner/loss_terms.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {

State TorchRunnerBase::Internals::Snapshot::save() const {
  State out;
  out["split"] = runner_.loop_.split;
  out["iteration"] = runner_.loop_.iteration;
  out["last"] = to_state(runner_.loop_.last);
  out["first_step"] = runner_.loop_.first_step;
  out["target_step"] = runner_.loop_.target_step;
  out["round"] = to_state(runner_.loop_.round);
  if (!runner_.loop_.evaluated.empty()) {
    out["evaluated"] = State::List(runner_.loop_.evaluated.begin(), runner_.loop_.evaluated.end());
  }
  if (runner_.requests_.evaluation) {
    out["evaluation_asked"] = true;
  }
  // A run that a callback ended is complete up to this boundary. Early stopping decides again, by its patience.
  if (runner_.requests_.ended && !runner_.early_stopping().out_of_patience()) {
    out["ended"] = *runner_.requests_.ended;
    out["boundary"] = runner_.epochs() ? *runner_.epochs() : runner_.steps().value_or(0);
  }
  out["rounds_without_best"] = runner_.early_stopping().rounds_without_best();
  out["skipped_updates"] = runner_.skipped_updates_;
  for (const Learner& learner : runner_.learners_) {
    if (learner.name.empty() && runner_.learners_.size() > 1) {  // those of `models` are beside their weights
      out["updates"] = learner.updates;
      out["skipped"] = learner.skipped;
    }
  }
  if (runner_.saved_gradients_.is_map()) {
    out["gradients"] = runner_.saved_gradients_;
  }
  for (const Learner& learner : runner_.learners_) {
    if (learner.stats != nullptr) {
      out["gradients"][learner.name] = learner.stats->state_dict();
    }
  }
  if (runner_.loss_policy_ != nullptr) {
    out["watch"] = LossPolicy(runner_).save();
  }
  const detail::Measurements now = of_all_ranks();
  out["meters"] = now.meters;
  out["metrics"] = now.metrics;
  out["losses"] = now.losses;
  if (runner_.loss_terms_ != nullptr) {
    out["loss_updates"] = now.loss_updates;
  }
  if (now.shares.value_or(1) > 1) {
    out["shares"] = *now.shares;
  }
  return out;
}

State TorchRunnerBase::Internals::Snapshot::save_pass() const {
  const detail::Measurements own = current();
  State out;
  if (!runner_.loop_.split.empty() && !own.shares) {
    out["meters"] = own.meters;
    out["metrics"] = own.metrics;
    out["losses"] = own.losses;
  }
  return out;
}

// Until the split resumes, its meters are those of the checkpoint.
detail::Measurements TorchRunnerBase::Internals::Snapshot::current() const {
  return runner_.loop_.split.empty()                   ? detail::Measurements()
         : runner_.loop_.continuing || runner_.paused_ ? runner_.saved_measurements_
                                                       : measurements();
}

detail::Measurements TorchRunnerBase::Internals::Snapshot::of_all_ranks() const {
  detail::Measurements out = current();
  if (runner_.loop_.split.empty() || out.shares) {
    return out;
  }
  out.shares = runner_.parallelism_->data_share().size;
  const std::vector<State>& ranks = runner_.services().passes;
  if (ranks.empty()) {
    return out;
  }
  const auto each = [&](const char* part) {
    std::vector<State> states;
    for (const State& rank : ranks) {
      if (!rank.at(part).is_null()) {
        states.push_back(rank.at(part));
      }
    }
    return states;
  };
  out.meters = AverageMeters::merge_states(each("meters"));
  if (runner_.criterion.losses() != nullptr) {
    out.losses = runner_.criterion.losses()->merge_states(each("losses"));
  }
  const auto& metrics = runner_.train_metrics != nullptr ? runner_.train_metrics : runner_.metrics;
  if (metrics != nullptr) {
    try {
      out.metrics = metrics->merge_states(each("metrics"));
    } catch (const StateError& error) {  // from a class of the program; training does not depend on them
      runner_.logger().warning(concat("the checkpoint holds only the metrics of rank 0 in the middle of ",
                                      runner_.split(), ": ", error.what()));
    }
  }
  return out;
}

detail::Measurements TorchRunnerBase::Internals::Snapshot::measurements() const {
  State own = runner_.meters.state_dict();
  for (const auto& [name, meter] : runner_.meters) {
    if (meter.count() == 0) {
      own.map().erase(name);  // from an earlier evaluation, unknown to a resumed process
    }
  }
  return {.meters = std::move(own),
          .metrics = runner_.active_metrics_ != nullptr ? runner_.active_metrics_->state_dict() : State(),
          .losses = runner_.criterion.losses() != nullptr ? runner_.criterion.losses()->state_dict() : State(),
          .loss_updates = runner_.loss_terms_ != nullptr ? runner_.loss_terms_->updates() : 0};
}

detail::Measurements TorchRunnerBase::Internals::Snapshot::copied_measurements() const {
  detail::Measurements out = measurements();
  for (State* part : {&out.meters, &out.metrics, &out.losses}) {
    *part = clone(*part);
  }
  return out;
}

// The first rank continues with the sums of all ranks, the others with zero; some metrics divide their state by
// position instead.
void TorchRunnerBase::Internals::Snapshot::restore_share(const detail::Measurements& saved) {
  const AxisPlace place = runner_.parallelism_->data_share();
  detail::Measurements own = saved;
  own.shares.reset();
  if (place.rank > 0) {
    own.meters = State(State::Map());
    own.metrics = own.losses = State();
  }
  const bool same = *saved.shares == place.size && place.num_shares < place.size;
  if (same && runner_.active_metrics_ != nullptr && !saved.metrics.is_null()) {
    try {
      own.metrics = runner_.active_metrics_->share_of_state(saved.metrics, place.rank, place.rank + place.num_shares)
                        .value_or(State());
    } catch (const StateError&) {  // `restore` throws it too, and reports it
    }
  }
  restore(own);
}

void TorchRunnerBase::Internals::Snapshot::restore(const detail::Measurements& saved) {
  if (saved.shares) {
    return restore_share(saved);
  }
  runner_.meters.load_state_dict(saved.meters);
  if (runner_.active_metrics_ != nullptr && !saved.metrics.is_null()) {
    restore_metrics(saved.metrics);
  }
  if (runner_.criterion.losses() != nullptr && !saved.losses.is_null()) {
    runner_.criterion.losses()->load_state_dict(saved.losses);
  }
  if (runner_.loss_terms_ != nullptr) {
    runner_.loss_terms_->set_weights(saved.loss_updates);
  }
}

void TorchRunnerBase::Internals::Snapshot::restore_metrics(const State& saved) {
  try {
    runner_.active_metrics_->load_state_dict(saved);
  } catch (const StateError& error) {
    // Metrics may change between two attempts; training does not depend on them.
    runner_.logger().warning(concat("the metrics differ from those of the checkpoint and restart in the middle of ",
                                    runner_.split(), ": ", error.what()));
    runner_.active_metrics_->reset();
  }
}

void TorchRunnerBase::Internals::Snapshot::load(const State& state) {
  LoopState loop;
  loop.split = state.at("split").string();
  loop.iteration = state.at("iteration").integer();
  loop.last = result_from_state(state.at("last"));
  loop.first_step = state.at("first_step").integer();
  loop.target_step = state.at("target_step").integer();
  loop.round = result_from_state(state.at("round"));
  if (const State* evaluated = state.find("evaluated")) {
    for (const State& split : evaluated->list()) {
      loop.evaluated.push_back(split.string());
    }
  }
  runner_.requests_.evaluation = state.find("evaluation_asked") != nullptr;
  const std::int64_t boundary = runner_.epochs() ? *runner_.epochs() : runner_.steps().value_or(0);
  if (const State* ended = state.find("ended"); ended != nullptr && boundary <= state.at("boundary").integer()) {
    loop.ended = ended->string();
  }
  runner_.early_stopping().set_rounds_without_best(state.at("rounds_without_best").integer());
  runner_.skipped_updates_ = runner_.skips_logged_ = state.at("skipped_updates").integer();
  if (const State* updates = state.find("updates")) {
    const std::pair counts(updates->integer(), state.at("skipped").integer());
    runner_.learner_counts_[""] = counts;
    for (Learner& learner : runner_.learners_) {
      if (learner.name.empty()) {  // a roll-back during training
        std::tie(learner.updates, learner.skipped) = counts;
        runner_.learner_counts_.erase("");
      }
    }
  }
  const State* gradients = state.find("gradients");
  runner_.saved_gradients_ = gradients != nullptr ? *gradients : State();
  const State* watch = state.find("watch");
  if (watch != nullptr && runner_.loss_policy_ == nullptr) {  // windows that a roll-back skips stay skipped
    runner_.loss_policy_ = std::make_shared<detail::LossPolicyState>();
  }
  if (runner_.loss_policy_ != nullptr) {
    LossPolicy(runner_).load(watch);
  }
  for (Learner& learner : runner_.learners_) {
    learner.unread_flag = learner.unread_skips = at::Tensor();
    Gradients(runner_).restore_stats(learner);
  }
  runner_.unread_steps_ = at::Tensor();
  runner_.saved_measurements_.meters = state.at("meters");
  runner_.saved_measurements_.metrics = state.at("metrics");
  const State* losses = state.find("losses");  // missing in checkpoints of the first releases
  runner_.saved_measurements_.losses = losses != nullptr ? *losses : State();
  const State* shares = state.find("shares");
  runner_.saved_measurements_.shares = shares != nullptr ? shares->integer() : 1;
  const State* updates = state.find("loss_updates");
  runner_.saved_measurements_.loss_updates = updates != nullptr ? updates->integer() : runner_.state_.train.global_step;
  runner_.loop_ = std::move(loop);
  runner_.loop_.continuing = !runner_.loop_.split.empty() || !runner_.loop_.round.empty();
}

}  // namespace danling::inline v0
