#include <runner/averages.hpp>

#include <algorithm>
#include <utility>

#include <danling/optim/batch_norm_statistics.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/adapters.hpp>
#include <runner/learners.hpp>
#include <runner/schedules.hpp>

namespace danling::inline v0 {

namespace detail {

optim::WeightAverage* AveragesOfModel::evaluated() {
  if (swa && swa->has_average() && (!needs_statistics || has_statistics || estimating)) {
    return &*swa;
  }
  return ema && ema->has_average() ? &*ema : nullptr;
}

}  // namespace detail

namespace {

template <class Config>
bool any_enabled(const Config& config) {
  return config.enabled.value_or(false) || std::any_of(config.models.begin(), config.models.end(), [](const auto& own) {
           return own.second.enabled.value_or(false);
         });
}

// Options of `model`, or of one of `models`; empty if the average is off.
template <class Options>
std::optional<Options> enabled_options(const AverageConfig<Options>& config, const std::string& model) {
  const auto section = model.empty() ? static_cast<const AverageSection<Options>&>(config) : config.for_name(model);
  return section.enabled.value_or(false) ? std::optional<Options>(section) : std::nullopt;
}

}  // namespace

bool TorchRunnerBase::Internals::Averages::is_enabled(const RunnerConfig& config) {
  return any_enabled(config.ema) || any_enabled(config.swa);
}

// Call it only after the models are on their device.
detail::ModelAverages& TorchRunnerBase::Internals::Averages::all() {
  if (!runner_.averages_->built) {
    build();
    runner_.averages_->built = true;
  }
  return *runner_.averages_;
}

void TorchRunnerBase::Internals::Averages::build() {
  constexpr const char* where = "runner.averages";
  check<ConfigError>(!runner_.ema, where,
                     "expected either ema.enabled or swa.enabled in the config or the runner's own `ema`, got both; "
                     "leave `ema` empty, since the runner keeps the average");
  const auto add = [&](const std::string& name, const ModelHandle& handle) {
    const auto bound = runner_.optimizers.find(name);
    if (!handle.is_trainable() || (bound != runner_.optimizers.end() && bound->second == nullptr)) {
      return;
    }
    detail::AveragesOfModel made;
    if (const auto options = enabled_options(runner_.config().ema, name)) {
      const Parallelism& parallelism = runner_.parallelism();
      const bool whole = parallelism.has_whole_parameters();
      made.ema.emplace(whole ? handle.named_state() : detail::trained_state(parallelism, handle),
                       whole ? handle.named_parameters() : parallelism.trained_parameters(handle), *options);
      // Other ranks read the rows at their addresses, and slices have more than values.
      runner_.averages_->keeps_memory =
          !whole || parallelism.splits_parameters() || !parallelism.can_gather_full_state();
      made.ema->set_copies_on_apply(runner_.averages_->keeps_memory);
    }
    if (const auto options = enabled_options(runner_.config().swa, name)) {
      const auto state = handle.named_state();
      made.swa_options = resolved(*options, units(name));
      // prepare() sets the start in this run: a program that only evaluates has no length.
      made.swa.emplace(state, handle.named_parameters(), made.swa_options, units(name).value_or(1));
      const bool script_statistics =
          handle.is_script() && std::any_of(state.begin(), state.end(),
                                            [](const auto& item) { return item.first.ends_with("running_mean"); });
      const bool updates = options->update_bn.value_or(true);
      check<ConfigError>(!updates || !script_statistics, where,
                         "expected swa.update_bn false for a TorchScript model with batch normalization, whose "
                         "statistics cannot be estimated again, got true");
      made.needs_statistics = updates && handle.module() && optim::BatchNormStatistics::has_any(*handle.module());
      check<ConfigError>(!made.needs_statistics || !runner_.parallelism().computes_shards(), "runner.averages",
                         "expected swa.update_bn: false with parallel.virtual_ranks, got true for a model with batch "
                         "normalization, whose statistics over the data would depend on the number of processes");
    }
    if (made.ema || made.swa) {
      runner_.averages_->models.emplace(name, std::move(made));
    }
  };
  if (runner_.model) {
    add("", runner_.model);
  }
  for (const auto& [name, handle] : runner_.models) {
    add(name, handle);
  }
  check<ConfigError>(!runner_.averages_->models.empty(), where,
                     "expected a model with trainable parameters for ema.enabled or swa.enabled, got none");
}

// ---- units of SWA: epochs, or updates of the model in a run by steps ------------------------------------------------

std::optional<std::int64_t> TorchRunnerBase::Internals::Averages::units(const std::string& name) const {
  return by_epochs() ? runner_.epochs() : Schedules(runner_).length_in_steps(name);
}

optim::SWAOptions TorchRunnerBase::Internals::Averages::resolved(optim::SWAOptions options,
                                                                 std::optional<std::int64_t> total) const {
  if (!options.interval) {
    options.interval = by_epochs() ? 1 : std::max<std::int64_t>(total.value_or(1) / 100, 1);
  }
  if (!options.anneal) {
    options.anneal = 10 * *options.interval;
  }
  return options;
}

std::int64_t TorchRunnerBase::Internals::Averages::position() const {
  return by_epochs() ? runner_.state_.train.epoch : runner_.state_.train.global_step;
}

// ---- training -------------------------------------------------------------------------------------------------------

// Called before the counters read the flag of an update that the device may have skipped.
void TorchRunnerBase::Internals::Averages::update(Learner& learner) {
  const auto found = all().models.find(learner.name);
  if (found == all().models.end()) {
    return;
  }
  auto& averages = found->second;
  if (averages.ema) {
    if (runner_.parallelism().splits_parameters() && runner_.parallelism().has_whole_parameters()) {
      runner_.parallelism().end_updates();  // the average is over whole parameters
    }
    averages.ema->update(learner.unread_flag);
  }
  if (averages.swa && !by_epochs()) {
    averages.has_statistics = !averages.swa->update(learner.unread_flag) && averages.has_statistics;
    bind_schedule(learner, averages);
  }
}

// Skips an epoch that is already averaged: the run was stopped in its evaluation.
void TorchRunnerBase::Internals::Averages::end_epoch() {
  if (runner_.averages_ == nullptr || !by_epochs()) {
    return;
  }
  for (auto& [name, averages] : all().models) {
    if (averages.swa && averages.swa->updates() <= runner_.state_.train.epoch) {
      averages.has_statistics = !averages.swa->update() && averages.has_statistics;
    }
  }
}

// ---- evaluation -----------------------------------------------------------------------------------------------------

TorchRunnerBase::Internals::Averages::Scope::Scope(const TorchRunnerBase& runner, bool applied)
    : runner_(const_cast<TorchRunnerBase&>(runner)) {  // a model's values are not part of the runner's constness
  if (runner_.averages_ != nullptr) [[unlikely]] {
    before_ = runner_.averages_->applied;
    Averages(runner_).set_applied(applied && !runner_.averages_->disabled);
  }
}

TorchRunnerBase::Internals::Averages::Scope::~Scope() {
  if (runner_.averages_ != nullptr) [[unlikely]] {
    Averages(runner_).set_applied(before_);
  }
}

State TorchRunnerBase::Internals::Averages::Scope::kept(State state) const {
  const detail::ModelAverages* averages = runner_.averages_.get();
  return averages != nullptr && averages->keeps_memory && before_ ? clone(state) : state;
}

void TorchRunnerBase::Internals::Averages::set_applied(bool applied) {
  if (std::exchange(all().applied, applied) == applied) {
    return;
  }
  for (auto& [name, averages] : all().models) {
    if (!applied) {
      for (auto* average : {&averages.ema, &averages.swa}) {
        if (*average) {
          (*average)->restore();
        }
      }
    } else if (auto* average = averages.evaluated()) {
      average->apply();
    }
  }
  Adapters(runner_).use_present();  // the layers hold base weights plus the exchanged adapters
  if (runner_.autocast_dtype_) {
    clear_autocast_cache();
  }
}

std::string TorchRunnerBase::Internals::Averages::evaluated() {
  bool exponential = false;
  for (auto& [name, averages] : all().models) {
    const auto* average = averages.evaluated();
    if (average != nullptr && averages.swa && average == &*averages.swa) {
      return "swa";
    }
    exponential = exponential || average != nullptr;
  }
  return exponential ? "ema" : "";
}

void TorchRunnerBase::Internals::Averages::add_evaluated(State& weights) {
  if (runner_.averages_ == nullptr) {
    return;
  }
  for (auto& [name, averages] : all().models) {
    if (const auto* average = averages.evaluated()) {
      (name.empty() ? weights : weights["models"][name])["ema"] = weights_of(name, *average);
    }
  }
}

State TorchRunnerBase::Internals::Averages::instead_of_models(State weights) {
  const auto replace = [](State& part) {
    if (const State* average = part.find("ema")) {
      part["model"] = State(*average);
      part.map().erase("ema");
    }
  };
  replace(weights);
  if (const State* models = weights.find("models")) {
    for (const auto& entry : State(*models).map()) {
      replace(weights["models"][entry.key]);
    }
  }
  return weights;
}

std::string TorchRunnerBase::evaluated_average() const {
  return averages_ != nullptr ? Internals::Averages(const_cast<TorchRunnerBase&>(*this)).evaluated() : ema ? "ema" : "";
}

}  // namespace danling::inline v0
