// The models that a run trains, each with its optimizer, schedule and window: built from the config, saved, restored.
#include <danling/runner/torch_runner_base.hpp>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include <danling/optim/build.hpp>

namespace danling::inline v0 {

void TorchRunnerBase::build_optimizers_of_models(std::vector<std::string>& warnings) {
  for (const auto& [name, handle] : models) {
    const NamedTensors parameters = handle.named_parameters();
    const bool trainable =
        std::any_of(parameters.begin(), parameters.end(), [](const auto& item) { return item.second.requires_grad(); });
    const auto spec = config().optim.for_name(name);
    if (!optimizers.contains(name) && spec.type && trainable) {
      optimizers[name] = optim::build_optimizer(spec, parameters, &warnings);
    }
  }
}

void TorchRunnerBase::build_schedulers_of_models() {
  for (const auto& [name, owner] : optimizers) {
    const auto spec = config().sched.for_name(name);
    if (owner != nullptr && spec.type && !schedulers.contains(name)) {
      schedulers[name] = optim::build_scheduler(spec, *owner, schedule_length(spec.interval.value_or("step")));
    }
  }
}

// Anew each time that training begins: the program may have bound others.
void TorchRunnerBase::make_learners() {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> counts;
  for (const Learner& learner : learners_) {
    counts[learner.name] = {learner.updates, learner.skipped};
  }
  learners_.clear();
  if (optimizer != nullptr) {
    learners_.push_back(make_learner("", optimizer, scheduler));
  }
  for (const auto& [name, owner] : optimizers) {
    if (owner != nullptr) {
      const auto found = schedulers.find(name);
      learners_.push_back(make_learner(name, owner, found == schedulers.end() ? nullptr : found->second));
    }
  }
  check<StateError>(!learners_.empty(), "runner.train",
                    "expected an optimizer, got none; set optim.type in the config or `optimizer` in the constructor");
  accum_span_ = 1;
  for (Learner& learner : learners_) {
    accum_span_ = std::lcm(accum_span_, learner.accum_steps);
    const auto loaded = learner_counts_.find(learner.name);
    const auto& [updates, skipped] = loaded != learner_counts_.end() ? loaded->second : counts[learner.name];
    learner.updates = updates;
    learner.skipped = skipped;
  }
  learner_counts_.clear();
  learner_ = &learners_.front();
}

Learner TorchRunnerBase::make_learner(const std::string& name, std::shared_ptr<optim::Optimizer> owner,
                                      std::shared_ptr<optim::Scheduler> schedule) const {
  Learner out{.name = name, .optimizer = std::move(owner), .scheduler = std::move(schedule)};
  const auto own = config().optim.for_name(name);
  out.accum_steps = name.empty() ? accum_steps() : own.accum_steps.value_or(accum_steps());
  out.max_grad_norm = own.max_grad_norm ? own.max_grad_norm : config().max_grad_norm;
  out.max_grad_value = own.max_grad_value ? own.max_grad_value : config().max_grad_value;
  if (out.scheduler != nullptr) {
    const auto interval = config().sched.for_name(name).interval;
    out.scheduler_by_step = interval.value_or(out.scheduler->requires_metric() ? "epoch" : "step") == "step";
    check<ConfigError>(out.scheduler_by_step || !config().evaluate_interval, "runner.train",
                       "expected sched.interval step beside evaluate_interval, which cuts passes over the data, got ",
                       quote(interval.value_or("epoch")));
  }
  out.window.share(parallelism().data_share().size > 1);
  return out;
}

// ---- state ----------------------------------------------------------------------------------------------------------

void TorchRunnerBase::save_models(State& out) const {
  for (const auto& [name, handle] : models) {
    State part;
    part["model"] = handle.state_dict();
    const auto owner = optimizers.find(name);
    const auto schedule = schedulers.find(name);
    part["optimizer"] = owner != optimizers.end() && owner->second ? owner->second->state_dict() : State();
    part["scheduler"] = schedule != schedulers.end() && schedule->second ? schedule->second->state_dict() : State();
    // Before training goes on, the counts are where the checkpoint put them.
    if (const auto loaded = learner_counts_.find(name); loaded != learner_counts_.end()) {
      part["updates"] = loaded->second.first;
      part["skipped_updates"] = loaded->second.second;
    }
    for (const Learner& learner : learners_) {
      if (learner.name == name && !learner_counts_.contains(name)) {
        part["updates"] = learner.updates;
        part["skipped_updates"] = learner.skipped;
      }
    }
    out["models"][name] = std::move(part);
  }
}

void TorchRunnerBase::load_models(const State& state) {
  for (auto& [name, handle] : models) {
    const State* part = state.find(name);
    check<CheckpointError>(part != nullptr, "runner.load_checkpoint", "expected ", quote(concat("models.", name)),
                           " in the checkpoint, got none");
    const auto load = [&](const char* key, auto& object) {
      const State* own = part->find(key);
      if (own != nullptr && !own->is_null()) {
        object.load_state_dict(*own);
      }
    };
    load("model", handle);
    if (const auto owner = optimizers.find(name); owner != optimizers.end() && owner->second) {
      load("optimizer", *owner->second);
    }
    if (const auto schedule = schedulers.find(name); schedule != schedulers.end() && schedule->second) {
      load("scheduler", *schedule->second);
    }
    if (const State* updates = part->find("updates")) {
      const std::pair counts(updates->integer(), part->at("skipped_updates").integer());
      const auto running = std::find_if(learners_.begin(), learners_.end(),
                                        [&](const Learner& learner) { return learner.name == name; });
      if (running != learners_.end()) {  // a roll-back while the run goes on
        std::tie(running->updates, running->skipped) = counts;
      } else {
        learner_counts_[name] = counts;
      }
    }
  }
}

}  // namespace danling::inline v0
