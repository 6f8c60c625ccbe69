// Model, optimizer and scheduler of a runner: built from the config, saved and restored.
#include <danling/runner/torch_runner_base.hpp>

#include <algorithm>

#include <torch/csrc/autograd/variable.h>

#include <danling/config/tree.hpp>
#include <danling/optim/build.hpp>
#include <danling/runner/early_stopping.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/telemetry/logger.hpp>

#include "runner/host_loop.hpp"
#include "runner/services.hpp"

namespace danling::inline v0 {
TorchRunnerBase::~TorchRunnerBase() = default;

void TorchRunnerBase::materialize_model() {
  check<StateError>(static_cast<bool>(model), "runner.materialize_model",
                    "expected a model, got none; assign `model` in the constructor of your runner");
  parallelism().prepare(model, device());
  ema.to(device());
  criterion.to(device());
}

NamedTensors TorchRunnerBase::iter_optimizer_named_parameters() const { return model.named_parameters(); }

void TorchRunnerBase::read_options() {
  autocast_dtype_ = config().precision_name() == "bf16" ? std::optional(at::kBFloat16) : std::nullopt;
  accum_steps_ = accum_steps();
  clips_ = config().skip_nonfinite_grad || config().max_grad_norm || config().max_grad_value;
}

void TorchRunnerBase::keep_gradient_accumulators() {
  // Autograd makes a parameter's accumulator anew in every forward pass when nothing of the last graph lives on.
  gradient_accumulators_.clear();
  for (const auto& item : model.named_parameters()) {
    if (item.second.requires_grad() && item.second.is_leaf()) {
      gradient_accumulators_.push_back(std::make_shared<c10::intrusive_ptr<torch::autograd::Node>>(
          torch::autograd::impl::grad_accumulator(item.second)));
    }
  }
}

void TorchRunnerBase::build_optimizer() {
  config().check_model_names({});
  std::vector<std::string> warnings{config().check_optim(optimizer != nullptr)};
  std::erase(warnings, "");
  if (optimizer == nullptr && config().optim.type) {
    optimizer = optim::build_optimizer(config().optim, iter_optimizer_named_parameters(), &warnings);
  }
  for (const auto& warning : warnings) {
    logger().warning(warning);
  }
}

void TorchRunnerBase::build_scheduler() {
  const auto& sched = config().sched;
  if (const std::string warning = config().check_sched(scheduler != nullptr); !warning.empty()) {
    logger().warning(warning);
  }
  if (scheduler == nullptr && optimizer != nullptr && sched.type) {
    std::optional<std::int64_t> total = steps();
    const std::string interval = sched.interval.value_or("step");
    if (interval != "step") {
      // It is stepped once an epoch, or once a round over the splits.
      const auto per_epoch = steps_per_epoch();
      check<ConfigError>(epochs() || (total && per_epoch && *per_epoch > 0), "runner.build_scheduler",
                         "expected data of known length for sched.interval ", interval, " with `steps`, got a stream");
      total = epochs() ? epochs() : std::optional((*total + *per_epoch - 1) / *per_epoch);
    }
    if (total) {
      total = std::max<std::int64_t>(*total, 1);  // of a run with nothing to do
    }
    scheduler = optim::build_scheduler(sched, *optimizer, total);
  }
  if (scheduler != nullptr) {
    const std::string interval = sched.interval.value_or(scheduler->requires_metric() ? "epoch" : "step");
    scheduler_by_step_ = interval == "step";
    check<ConfigError>(!scheduler_by_step_ || !scheduler->requires_metric(), "runner.build_scheduler",
                       "expected sched.interval epoch for a scheduler that needs a metric, got step");
  }
}

void TorchRunnerBase::step_epoch_scheduler(const Result& result) {
  if (scheduler == nullptr || scheduler_by_step_) {
    return;
  }
  if (!scheduler->requires_metric()) {
    scheduler->step();
    return;
  }
  const std::string monitor = config().sched.monitor.value_or(config().score_name);
  const double* value = nullptr;
  if (monitor.find('.') == std::string::npos) {
    if (const auto split = score_split()) {
      value = result.number(concat(*split, ".", monitor));
    }
  }
  value = value != nullptr ? value : result.number(monitor);
  if (value == nullptr) {
    // Not named in full: taken from the one split that has it.
    std::vector<std::string> found;
    for (const auto& [split, numbers] : result) {
      if (const auto* nested = std::get_if<Result>(&numbers); nested != nullptr && nested->number(monitor) != nullptr) {
        found.push_back(split);
        value = nested->number(monitor);
      }
    }
    check<ConfigError>(found.size() == 1, "runner.step_scheduler", "expected one split with the metric ",
                       quote(monitor), ", got [", join(found), "]; set sched.monitor to '<split>.<metric>'");
  }
  scheduler->step(*value);
}

const ModelHandle& TorchRunnerBase::evaluation_model() const { return ema ? ema : model; }

std::optional<std::int64_t> TorchRunnerBase::steps_per_epoch() const {
  std::int64_t total = 0;
  for (const auto& split : train_splits()) {
    const data::LoaderBase* loader = find_loader(split);
    if (loader == nullptr || !loader->length()) {
      return std::nullopt;
    }
    total += (*loader->length() + accum_steps() - 1) / accum_steps();
  }
  return total;
}

std::optional<std::int64_t> TorchRunnerBase::split_length(std::string_view split) const {
  const data::LoaderBase* loader = find_loader(split);
  return loader == nullptr ? std::nullopt : loader->length();
}

// ---- state ----------------------------------------------------------------------------------------------------------

State TorchRunnerBase::model_state_dict() const {
  State out;
  out["model"] = model.state_dict();
  if (ema) {
    out["ema"] = ema.state_dict();
  }
  return out;
}

State TorchRunnerBase::state_dict() {
  State out = BaseRunner::state_dict();
  out["loop"] = loop_state();
  out["ema"] = ema ? ema.state_dict() : State();
  out["optimizer"] = optimizer ? optimizer->state_dict() : State();
  out["scheduler"] = scheduler ? scheduler->state_dict() : State();
  out["model"] = model.state_dict();
  return out;
}

State TorchRunnerBase::loop_state() const {
  State out;
  out["split"] = loop_.split;
  out["iteration"] = loop_.iteration;
  out["last"] = to_state(loop_.last);
  out["first_step"] = loop_.first_step;
  out["target_step"] = loop_.target_step;
  out["round"] = to_state(loop_.round);
  out["rounds_without_best"] = early_stopping().rounds_without_best();
  out["skipped_updates"] = skipped_updates_;
  const bool inside = !loop_.split.empty();
  // Stopped before the split went on, its meters are still where the checkpoint put them.
  const Measurements now = !inside ? Measurements() : continuing_ || paused_ ? saved_ : measurements();
  out["meters"] = now.meters;
  out["metrics"] = now.metrics;
  out["losses"] = now.losses;
  return out;
}

TorchRunnerBase::Measurements TorchRunnerBase::measurements() const {
  return {.meters = meters.state_dict(),
          .metrics = active_metrics_ != nullptr ? active_metrics_->state_dict() : State(),
          .losses = criterion.losses() != nullptr ? criterion.losses()->state_dict() : State()};
}

void TorchRunnerBase::restore_measurements(const Measurements& saved) {
  meters.load_state_dict(saved.meters);
  if (active_metrics_ != nullptr && !saved.metrics.is_null()) {
    try {
      active_metrics_->load_state_dict(saved.metrics);
    } catch (const StateError& error) {
      // What is measured may change over a stop; what is trained does not depend on it.
      logger().warning(concat("the metrics are not those of the checkpoint and begin anew in the middle of ", split(),
                              ": ", error.what()));
      active_metrics_->reset();
    }
  }
  if (criterion.losses() != nullptr && !saved.losses.is_null()) {
    criterion.losses()->load_state_dict(saved.losses);
  }
}

void TorchRunnerBase::load_loop_state(const State& state) {
  LoopState loop;
  loop.split = state.at("split").string();
  loop.iteration = state.at("iteration").integer();
  loop.last = result_from_state(state.at("last"));
  loop.first_step = state.at("first_step").integer();
  loop.target_step = state.at("target_step").integer();
  loop.round = result_from_state(state.at("round"));
  early_stopping().set_rounds_without_best(state.at("rounds_without_best").integer());
  skipped_updates_ = state.at("skipped_updates").integer();
  saved_.meters = state.at("meters");
  saved_.metrics = state.at("metrics");
  const State* losses = state.find("losses");  // not in the checkpoints of the first releases
  saved_.losses = losses != nullptr ? *losses : State();
  loop_ = std::move(loop);
  continuing_ = !loop_.split.empty() || !loop_.round.empty();
}

void TorchRunnerBase::load_state_dict(const State& checkpoint) {
  BaseRunner::load_state_dict(checkpoint);
  if (const State* loop = checkpoint.find("loop")) {
    load_loop_state(*loop);
  }
}

void TorchRunnerBase::load_model(const State& state) { model.load_state_dict(state); }
void TorchRunnerBase::load_ema(const State& state) { ema.load_state_dict(state); }
void TorchRunnerBase::load_optimizer(const State& state) { optimizer->load_state_dict(state); }
void TorchRunnerBase::load_scheduler(const State& state) { scheduler->load_state_dict(state); }

void TorchRunnerBase::load_components(const State& checkpoint) {
  const auto part = [&](std::string_view key, bool bound) -> const State* {
    const State* found = excluded_from_loading(key) ? nullptr : checkpoint.find(key);
    if (bound && !excluded_from_loading(key) && !is_finished()) {
      check<CheckpointError>(found != nullptr && !found->is_null(), "runner.load_checkpoint", "expected ", quote(key),
                             " in the checkpoint, got none; set `pretrained` to load weights alone, or put ",
                             quote(key), " into checkpoint.exclude_from_loading");
    }
    return bound && found != nullptr && !found->is_null() ? found : nullptr;
  };
  if (const State* state = part("model", true)) {
    load_model(*state);
  }
  if (const State* state = part("ema", static_cast<bool>(ema))) {
    load_ema(*state);
  }
  if (const State* state = part("optimizer", optimizer != nullptr)) {
    load_optimizer(*state);
  }
  if (const State* state = part("scheduler", scheduler != nullptr)) {
    load_scheduler(*state);
  }
}

}  // namespace danling::inline v0
