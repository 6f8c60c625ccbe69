// The models in training, each with its optimizer, schedule and window: built from the config, saved, restored.
#include <runner/learners.hpp>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include <torch/csrc/autograd/variable.h>

#include <danling/core/detail/suggest.hpp>
#include <danling/optim/build.hpp>
#include <danling/runner/torch_runner_base.hpp>

#include <runner/adapters.hpp>
#include <runner/averages.hpp>
#include <runner/gradients.hpp>
#include <runner/load_part.hpp>
#include <runner/repeated_step.hpp>
#include <runner/schedules.hpp>
#include <runner/shard_states.hpp>
#include <runner/unread_options.hpp>

namespace danling::inline v0 {

void TorchRunnerBase::Internals::Learners::build_optimizers(std::vector<std::string>& warnings) {
  std::vector<std::string> known;
  for (const auto& [name, handle] : runner_.models) {
    known.push_back(name);
  }
  const auto check_name = [&](const std::string& name, std::string_view member) {
    check<ConfigError>(runner_.models.contains(name), "runner.build_optimizer", "expected in `", member,
                       "` names of models, one of [", join(known), "], got ", quote(name), did_you_mean(name, known));
  };
  for (const auto& [name, owner] : runner_.optimizers) {
    check_name(name, "optimizers");
  }
  for (const auto& [name, owner] : runner_.schedulers) {
    check_name(name, "schedulers");
  }
  for (const auto& [name, own] : runner_.config().optim.models) {
    const bool typed = runner_.config().optim.for_name(name).type.has_value();
    warnings.push_back(detail::check_unread(concat("optim.", name), "optimizer", typed, detail::keys_of_type(own),
                                            runner_.optimizers.contains(name)));
  }
  std::erase(warnings, "");
  for (const auto& [name, handle] : runner_.models) {
    const auto spec = runner_.config().optim.for_name(name);
    if (!runner_.optimizers.contains(name) && spec.type && handle.is_trainable()) {
      runner_.optimizers[name] =
          Adapters::build_optimizer(spec, handle, runner_.parallelism().trained_parameters(handle), warnings);
    }
    const auto owner = runner_.optimizers.find(name);
    if (owner != runner_.optimizers.end() && owner->second != nullptr) {
      build_scaler(runner_.scalers[name]);
    }
  }
}

void TorchRunnerBase::Internals::Learners::build_scaler(std::shared_ptr<optim::GradScaler>& scaler) const {
  if (scaler == nullptr && runner_.config().scales_loss()) {
    scaler = std::make_shared<optim::GradScaler>(runner_.device(), runner_.config().scaler);
  }
}

void TorchRunnerBase::Internals::Learners::build_schedulers(std::vector<std::string>& warnings) {
  for (const auto& [name, own] : runner_.config().sched.models) {
    const bool typed = !runner_.config().sched.for_name(name).type_name().empty();
    const bool set = runner_.schedulers.contains(name);
    warnings.push_back(
        detail::check_unread(concat("sched.", name), "scheduler", typed, detail::keys_of_type(own, set), set));
  }
  std::erase(warnings, "");
  for (const auto& [name, owner] : runner_.optimizers) {
    const auto spec = runner_.config().sched.for_name(name);
    if (owner != nullptr && !spec.type_name().empty() && !runner_.schedulers.contains(name)) {
      runner_.schedulers[name] = Schedules(runner_).build(name, spec, *owner);
    }
    const auto found = runner_.schedulers.find(name);
    if (found != runner_.schedulers.end() && found->second != nullptr) {
      Schedules(runner_).check_interval(spec, *found->second);
    }
  }
}

// Rebuilds the learners each time training begins, since the program may have set other optimizers.
void TorchRunnerBase::Internals::Learners::make() {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> counts;
  for (const Learner& learner : runner_.learners_) {
    counts[learner.name] = {learner.updates, learner.skipped};
  }
  std::vector<Learner> made;
  if (runner_.optimizer != nullptr) {
    made.push_back(make_learner("", runner_.optimizer, runner_.scheduler));
  }
  for (const auto& [name, owner] : runner_.optimizers) {
    if (owner != nullptr) {
      const auto found = runner_.schedulers.find(name);
      made.push_back(make_learner(name, owner, found == runner_.schedulers.end() ? nullptr : found->second));
    }
  }
  const bool frozen = std::any_of(runner_.models.begin(), runner_.models.end(), [this](const auto& item) {
    return runner_.config().optim.for_name(item.first).type && !item.second.is_trainable();
  });
  check<ConfigError>(!made.empty() || !frozen, "runner.train",
                     "expected a model with parameters to train, got none that optim.freeze leaves");
  check<ConfigError>(!made.empty(), "runner.train",
                     "expected an optimizer, got none; set optim.type in the config or `optimizer` in the constructor");
  runner_.learners_ = std::move(made);
  runner_.accum_span_ = 1;
  for (Learner& learner : runner_.learners_) {
    runner_.accum_span_ = std::lcm(runner_.accum_span_, learner.accum_steps);
    const auto loaded = runner_.learner_counts_.find(learner.name);
    const auto& [updates, skipped] = loaded != runner_.learner_counts_.end() ? loaded->second : counts[learner.name];
    learner.updates = updates;
    learner.skipped = skipped;
  }
  runner_.learner_counts_.clear();
  runner_.learner_ = &runner_.learners_.front();
  for (Learner& learner : runner_.learners_) {
    learner.repeats_step = learner.optimizer->requires_closure();
    if (learner.repeats_step) {
      learner.reads_flags_late = false;  // its updates synchronize with the device anyway
      StepRepeater(runner_).check_settings(learner);
    }
  }
}

Learner TorchRunnerBase::Internals::Learners::make_learner(const std::string& name,
                                                           std::shared_ptr<optim::Optimizer> owner,
                                                           std::shared_ptr<optim::Scheduler> schedule) const {
  Learner out{.name = name, .optimizer = std::move(owner), .scheduler = std::move(schedule)};
  const auto own = runner_.config().optim.for_name(name);
  out.accum_steps = Schedules(runner_).window_length(name);
  out.max_grad_norm = own.max_grad_norm ? own.max_grad_norm : runner_.config().max_grad_norm;
  out.max_grad_value = own.max_grad_value ? own.max_grad_value : runner_.config().max_grad_value;
  const auto found = runner_.scalers.find(name);
  out.scaler = name.empty() ? runner_.scaler : found == runner_.scalers.end() ? nullptr : found->second;
  Gradients(runner_).configure(out);
  if (out.scheduler != nullptr) {
    const optim::SchedulerSpec spec = Schedules(runner_).spec_of(name);
    const bool metric = out.scheduler->requires_metric();
    out.scheduler_by_step = spec.interval_name() == "step" || (spec.interval_name().empty() && !metric);
    check<ConfigError>(out.scheduler_by_step || metric || !runner_.config().evaluate_interval, "runner.train",
                       "expected sched.interval step with evaluate_interval, which cuts passes over the data, got ",
                       quote(spec.interval.value_or("epoch")));
  }
  out.window.share(runner_.parallelism().sums_gradients());
  return out;
}

void TorchRunnerBase::Internals::Learners::keep_gradient_accumulators() {
  // Autograd recreates a parameter's gradient accumulator in every forward pass unless something keeps it alive.
  runner_.gradient_accumulators_.clear();
  const auto keep = [this](const ModelHandle& handle) {
    for (const auto& item : handle.named_parameters()) {
      if (item.second.requires_grad() && item.second.is_leaf()) {
        auto accumulator = torch::autograd::impl::grad_accumulator(item.second);  // type varies between versions
        runner_.gradient_accumulators_.push_back(std::make_shared<decltype(accumulator)>(std::move(accumulator)));
      }
    }
  };
  if (runner_.model) {
    keep(runner_.model);
  }
  for (const auto& [name, handle] : runner_.models) {
    keep(handle);
  }
}

// ---- state ----------------------------------------------------------------------------------------------------------

void TorchRunnerBase::Internals::Learners::save(State& out) const {
  const bool in_shards = runner_.saves_shards() && !runner_.shard_states().is_exposed();
  for (const auto& [name, handle] : runner_.models) {
    State part;
    part["model"] = in_shards ? ShardStates(runner_).of_model(handle) : handle.state_dict();
    const auto owner = runner_.optimizers.find(name);
    const auto schedule = runner_.schedulers.find(name);
    part["optimizer"] = owner != runner_.optimizers.end() && owner->second
                            ? (in_shards ? ShardStates(runner_).of_optimizer(handle, *owner->second)
                                         : runner_.parallelism().optimizer_state(*owner->second))
                            : State();
    part["scheduler"] =
        schedule != runner_.schedulers.end() && schedule->second ? schedule->second->state_dict() : State();
    if (const auto scale = runner_.scalers.find(name); scale != runner_.scalers.end() && scale->second) {
      part["scaler"] = scale->second->state_dict();
    }
    // Until training begins, the counts are those of the checkpoint.
    if (const auto loaded = runner_.learner_counts_.find(name); loaded != runner_.learner_counts_.end()) {
      part["updates"] = loaded->second.first;
      part["skipped_updates"] = loaded->second.second;
    }
    for (const Learner& learner : runner_.learners_) {
      if (learner.name == name && !runner_.learner_counts_.contains(name)) {
        part["updates"] = learner.updates;
        part["skipped_updates"] = learner.skipped;
      }
    }
    Averages(runner_).save(name, part);
    out["models"][name] = std::move(part);
  }
}

void TorchRunnerBase::Internals::Learners::load(const State& state) {
  for (const auto& entry : state.map()) {
    check<CheckpointError>(runner_.models.contains(entry.key.string()), "runner.load_checkpoint", "expected a model ",
                           quote(entry.key.string()),
                           ", as in the checkpoint, got none; put 'models' into checkpoint.exclude_from_loading, or "
                           "set `pretrained` to load only weights");
  }
  for (auto& [name, handle] : runner_.models) {
    const State* part = state.find(name);
    check<CheckpointError>(part != nullptr, "runner.load_checkpoint", "expected ", quote(concat("models.", name)),
                           " in the checkpoint, got none");
    const auto load = [&, &name = name](const char* key, auto& object) {
      const State* own = runner_.excluded_from_loading(key) ? nullptr : part->find(key);
      if (own != nullptr && !own->is_null()) {
        detail::load_part(concat("models.", name, ".", key), *own,
                          [&](const State& saved) { object.load_state_dict(saved); });
      }
    };
    if (const State* weights = part->find("model"); weights != nullptr && !weights->is_null()) {
      runner_.load_named_model(name, *weights);
    }
    if (const auto owner = runner_.optimizers.find(name); owner != runner_.optimizers.end() && owner->second) {
      if (const State* own = part->find("optimizer");
          own != nullptr && !own->is_null() && !runner_.excluded_from_loading("optimizer")) {
        detail::load_part(
            concat("models.", name, ".optimizer"), *own, [&, &owner = owner, &handle = handle](const State& saved) {
              if (ShardStates::is_named(saved) || (runner_.saves_shards() && !runner_.shard_states().is_exposed())) {
                ShardStates(runner_).load_optimizer(handle, *owner->second, saved);
              } else {
                runner_.parallelism().load_optimizer_state(*owner->second, saved);
              }
            });
      }
    }
    if (const auto schedule = runner_.schedulers.find(name); schedule != runner_.schedulers.end() && schedule->second) {
      load("scheduler", *schedule->second);
    }
    if (const auto scale = runner_.scalers.find(name); scale != runner_.scalers.end() && scale->second) {
      load("scaler", *scale->second);
    }
    Averages(runner_).load(name, *part);
    if (const State* updates = part->find("updates")) {
      const std::pair counts(updates->integer(), part->at("skipped_updates").integer());
      const auto running = std::find_if(runner_.learners_.begin(), runner_.learners_.end(),
                                        [&name = name](const Learner& learner) { return learner.name == name; });
      if (running != runner_.learners_.end()) {  // a roll-back during training
        std::tie(running->updates, running->skipped) = counts;
      } else {
        runner_.learner_counts_[name] = counts;
      }
    }
  }
}

void TorchRunnerBase::Internals::Learners::load_weights(const State& state) {
  if (runner_.model || runner_.models.empty()) {
    runner_.load_model(state.at("model"));
  }
  if (runner_.ema) {
    runner_.load_ema(state.at("ema"));
  }
  for (const auto& [name, handle] : runner_.models) {  // the averages stay
    runner_.load_named_model(name, state.at("models").at(name).at("model"));
  }
}

}  // namespace danling::inline v0
