// State of a run in a checkpoint: config, counters, results, callbacks and tracked objects.
#include <exception>
#include <utility>

#include <danling/config/tree.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/runner/parallelism.hpp>

#include <runner/restorer.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {

void BaseRunner::register_state(const std::string& name, const Internals::Tracked& tracked) {
  check<StateError>(phase_ == Phase::constructed, "runner.register_state",
                    "expected a call before initialize(), got one later");
  for (const auto& [other, ignored] : tracked_) {
    check<ConfigError>(other != name, "runner.register_state", "expected different names, got ", quote(name), " twice");
  }
  const auto named = [name](const auto& call) {
    try {
      return call();
    } catch (const std::exception& error) {
      fail<CheckpointError>("runner.register_state", "expected the object ", quote(name),
                            " to save or load its state, got an exception: ", error.what());
    }
  };
  tracked_.emplace_back(
      name, Internals::Tracked{[=] { return named(tracked.state_dict); },
                               [=](const State& state) { named([&] { tracked.load_state_dict(state); }); }});
}

State BaseRunner::state_dict() {
  if (!rng_frozen_) {
    state_.rng.capture();
  }
  ConfigTree config_tree = to_tree(config());
  // The options that start an attempt are not part of the run.
  for (const auto* key : {"resume", "auto_resume", "pretrained", "pretrained_strict", "pretrained_key",
                          "pretrained_rename", "pretrained_skip"}) {
    config_tree.map().erase(key);
  }
  State out;
  out["runner"] = convert_tree<State>(config_tree);
  out["state"] = state_.state_dict();
  out["seed"] = static_cast<std::int64_t>(seed_);
  out["dataloaders"] = dataloader_state();
  out["results"] = results_.state_dict();
  if (!best_average_.empty()) {
    out["best_average"] = best_average_;
  }
  out["metrics_lines"] = std::int64_t{0};
  if (services_ != nullptr && services_->recorder != nullptr) {
    services_->recorder->save_lines(out);
  } else if (services_ != nullptr && services_->records.is_map()) {
    for (const auto& [key, value] : services_->records.map()) {
      out[key.string()] = value;
    }
  }
  if (State callbacks = callbacks_.state_dict(); !callbacks.map().empty()) {
    out["callbacks"] = std::move(callbacks);
  }
  for (const auto& [name, tracked] : tracked_) {
    out["tracked"][name] = tracked.state_dict();
  }
  if (services_ != nullptr && services_->ranks.is_map()) {
    out["ranks"] = services_->ranks;
  }
  if (State axes = detail::axes_of(parallelism()); !axes.map().empty() || config().stack == "parallel") {
    out["parallel"]["axes"] = std::move(axes);
  }
  return out;
}

void BaseRunner::load_state_dict(const State& checkpoint) {
  check<StateError>(services_ != nullptr, "runner.load_state_dict",
                    "expected a call by load_checkpoint(), got one before initialize()");
  services_->base_loaded = true;
  if (const State* stored = checkpoint.find("runner")) {
    Internals::Restorer(*this).check_same_meaning(*stored);
  }
  if (const State* state = checkpoint.find("state")) {
    state_.load_state_dict(*state);
    state_.elastic.restart_count = parallelism_->identity().restart_count;
    if (state->find("rng") != nullptr) {
      state_.rng.restore();
    }
  }
  if (const State* seed = checkpoint.find("seed"); seed != nullptr && !config().seed) {
    seed_ = static_cast<std::uint64_t>(seed->integer());
  }
  if (const State* results = checkpoint.find("results")) {
    results_.load_state_dict(*results);
    const State* average = checkpoint.find("best_average");
    best_average_ = average != nullptr ? average->string() : std::string();
  }
}

}  // namespace danling::inline v0
