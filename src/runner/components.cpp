// Model, optimizer and scheduler of a runner: built from the config, saved and restored.
#include <algorithm>

#include <ATen/core/grad_mode.h>

#include <danling/config/tree.hpp>
#include <danling/metrics/build.hpp>
#include <danling/nn/recompute.hpp>
#include <danling/optim/build.hpp>
#include <danling/runner/early_stopping.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/torch_runner_base.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/adapters.hpp>
#include <runner/averages.hpp>
#include <runner/checks.hpp>
#include <runner/host_loop.hpp>
#include <runner/learners.hpp>
#include <runner/load_part.hpp>
#include <runner/loss_policy.hpp>
#include <runner/loss_terms.hpp>
#include <runner/schedules.hpp>
#include <runner/services.hpp>
#include <runner/shard_states.hpp>
#include <runner/snapshot.hpp>
#include <runner/step_tapes.hpp>
#include <runner/windows.hpp>

namespace danling::inline v0 {
TorchRunnerBase::TorchRunnerBase(StoredConfig<RunnerConfig> config) : BaseRunner(std::move(config)) { read_options(); }

TorchRunnerBase::~TorchRunnerBase() {
  pass_ = nullptr;  // overrides no longer exist: the pass must not resume
}

// In place: an optimizer that the program built refers to the parameters.
void TorchRunnerBase::convert_weights(c10::ScalarType dtype) const {
  const at::NoGradGuard no_grad;
  const auto convert = [dtype](const NamedTensors& tensors) {
    for (const auto& item : tensors) {
      at::Tensor tensor = item.second;
      if (tensor.is_floating_point()) {
        tensor.set_data(tensor.to(dtype));
      }
    }
  };
  convert(model.named_state());
  convert(ema.named_state());
  convert(teacher.named_state());
  for (const auto& [name, handle] : models) {
    convert(handle.named_state());
  }
  criterion.to(dtype);
}

namespace {

void select_recompute(TorchRunnerBase& runner) {
  const auto& patterns = runner.config().recompute;
  if (patterns.empty()) {
    return;
  }
  std::vector<std::pair<std::string, torch::nn::Module*>> modules;
  const auto add = [&](const std::string& name, const ModelHandle& model) {
    check<ConfigError>(model.module() != nullptr, "runner.recompute",
                       "expected models that are torch::nn modules, got ",
                       model.is_script() ? "a TorchScript module" : "a function", "; unset 'recompute'");
    modules.emplace_back(name, model.module().get());
  };
  if (runner.model) {
    add("", runner.model);
  }
  for (const auto& [name, model] : runner.models) {
    add(name, model);
  }
  const auto names = nn::recompute_modules(modules, patterns);
  runner.logger().info(concat("the activations of ", names.size(), " modules are recomputed: ", join(names)));
}

}  // namespace

void TorchRunnerBase::materialize_model() {
  check<StateError>(static_cast<bool>(model) || !models.empty(), "runner.materialize_model",
                    "expected a model, got none; assign `model` in the constructor of your runner");
  Internals::Adapters(*this).attach();
  Internals::Adapters(*this).freeze();
  if (input_dtype_) {
    convert_weights(*input_dtype_);
  }
  if (model) {
    parallelism().prepare(model, device());
  }
  for (auto& [name, handle] : models) {
    check<StateError>(static_cast<bool>(handle), "runner.materialize_model", "expected a model for models[\"", name,
                      "\"], got none");
    parallelism().prepare(handle, device());
  }
  ema.to(device());
  loss_terms_ = Internals::LossTerms::build(*this);
  tapes_ = Internals::StepTapes::build(*this);
  distills_ = loss_terms_ != nullptr && loss_terms_->has_teacher();
  criterion.to(device());
  select_recompute(*this);
}

NamedTensors TorchRunnerBase::iter_optimizer_named_parameters() const {
  return parallelism().trained_parameters(model);
}

void TorchRunnerBase::read_options() {
  averages_ = Internals::Averages::is_enabled(config()) ? std::make_shared<detail::ModelAverages>() : nullptr;
  const std::string_view precision = config().precision_name();
  autocast_dtype_ = precision == "bf16"   ? std::optional(at::kBFloat16)
                    : precision == "fp16" ? std::optional(at::kHalf)
                                          : std::nullopt;
  input_dtype_ = precision == "fp64" ? std::optional(at::kDouble) : std::nullopt;
  if (Internals::LossPolicy::judges(config())) {
    loss_policy_ = std::make_shared<detail::LossPolicyState>();
  }
}

void TorchRunnerBase::build_optimizer() {
  std::vector<std::string> names;
  for (const auto& [name, handle] : models) {
    names.push_back(name);
  }
  config().check_model_names(names);
  std::vector<std::string> warnings{config().check_optim(optimizer != nullptr)};
  if (optimizer == nullptr && config().optim.type && model) {
    optimizer =
        Internals::Adapters::build_optimizer(config().optim, model, iter_optimizer_named_parameters(), warnings);
  }
  if (optimizer != nullptr) {
    Internals::Learners(*this).build_scaler(scaler);
  }
  Internals::Learners(*this).build_optimizers(warnings);
  Internals::Adapters(*this).check_optimizers();
  for (const auto& warning : warnings) {
    logger().warning(warning);
  }
}

void TorchRunnerBase::build_scheduler() {
  const auto& sched = config().sched;
  std::vector<std::string> warnings{config().check_sched(scheduler != nullptr)};
  Internals::Learners(*this).build_schedulers(warnings);
  for (const auto& warning : warnings) {
    logger().warning(warning);
  }
  if (scheduler == nullptr && optimizer != nullptr && !sched.type_name().empty()) {
    scheduler = Internals::Schedules(*this).build("", sched, *optimizer);
  }
  if (scheduler != nullptr) {
    Internals::Schedules(*this).check_interval(sched, *scheduler);
  }
}

void TorchRunnerBase::build_metrics() {
  if (auto configured = danling::metrics::build_metrics(config().metrics)) {
    metrics = std::move(configured);
    train_metrics = nullptr;
    evaluate_metrics = nullptr;
  }
  Internals::Checks(*this).metric_names("runner.build_metrics");
}

const ModelHandle& TorchRunnerBase::evaluation_model() const { return ema ? ema : model; }

std::optional<std::int64_t> TorchRunnerBase::steps_per_epoch() const {
  const detail::WindowLengths lengths = Internals::Schedules(*this).window_lengths();
  std::int64_t total = 0;
  for (const auto& split : train_splits()) {
    const data::LoaderBase* loader = find_loader(split);
    if (loader == nullptr || !loader->num_steps()) {
      return std::nullopt;
    }
    total += lengths.steps_in(*loader->num_steps());
  }
  return total;
}

std::optional<std::int64_t> TorchRunnerBase::split_length(std::string_view split) const {
  const data::LoaderBase* loader = find_loader(split);
  return loader == nullptr ? std::nullopt : loader->num_steps();
}

// ---- state ----------------------------------------------------------------------------------------------------------

State TorchRunnerBase::model_state_dict() const {
  const Internals::Averages::Scope own(*this, Internals::Averages::saves_beside(*this));
  State out;
  if (model || models.empty()) {
    out["model"] = saves_shards() && !shard_states().is_exposed() ? Internals::ShardStates(*this).of_model(model)
                                                                  : model.state_dict();
  }
  if (ema) {
    out["ema"] = ema.state_dict();
  }
  for (const auto& [name, handle] : models) {
    out["models"][name]["model"] = saves_shards() && !shard_states().is_exposed()
                                       ? Internals::ShardStates(*this).of_model(handle)
                                       : handle.state_dict();
  }
  Internals::Averages(const_cast<TorchRunnerBase&>(*this)).add_evaluated(out);
  return own.kept(std::move(out));
}

State TorchRunnerBase::pass_state() const {
  return Internals::Snapshot(const_cast<TorchRunnerBase&>(*this)).save_pass();
}

State TorchRunnerBase::state_dict() {
  const Internals::Averages::Scope own(*this, Internals::Averages::saves_beside(*this));
  State out = BaseRunner::state_dict();
  out["loop"] = Internals::Snapshot(*this).save();
  out["ema"] = ema ? ema.state_dict() : State();
  const bool in_shards = saves_shards() && !shard_states().is_exposed();
  out["optimizer"] = !optimizer  ? State()
                     : in_shards ? Internals::ShardStates(*this).of_optimizer(model, *optimizer)
                                 : parallelism().optimizer_state(*optimizer);
  out["scheduler"] = scheduler ? scheduler->state_dict() : State();
  if (scaler) {
    out["scaler"] = scaler->state_dict();
  }
  out["model"] = !model && !models.empty() ? State()
                 : in_shards               ? Internals::ShardStates(*this).of_model(model)
                                           : model.state_dict();
  Internals::Averages(*this).save("", out);
  Internals::Learners(*this).save(out);
  return own.kept(std::move(out));
}

void TorchRunnerBase::load_state_dict(const State& checkpoint) {
  Internals::Checks(*this).not_training("runner.load_checkpoint");
  if (host_ != nullptr) {
    Internals::HostLoop::end(*this);  // the next batch continues from the checkpoint
    Internals::Windows(*this).drop();
  }
  BaseRunner::load_state_dict(checkpoint);
  if (const State* loop = checkpoint.find("loop")) {
    Internals::Snapshot(*this).load(*loop);
  }
}

void TorchRunnerBase::load_model(const State& state) {
  if (saves_shards() && !shard_states().is_exposed()) {
    Internals::ShardStates(*this).load_model(model, state);
  } else {
    model.load_state_dict(state);
  }
}
void TorchRunnerBase::load_named_model(const std::string& name, const State& state) {
  if (saves_shards() && !shard_states().is_exposed()) {
    Internals::ShardStates(*this).load_model(models.at(name), state);
  } else {
    models.at(name).load_state_dict(state);
  }
}
void TorchRunnerBase::load_ema(const State& state) { ema.load_state_dict(state); }
void TorchRunnerBase::load_optimizer(const State& state) {
  if (Internals::ShardStates::is_named(state) || (saves_shards() && !shard_states().is_exposed())) {
    Internals::ShardStates(*this).load_optimizer(model, *optimizer, state);
  } else {
    parallelism().load_optimizer_state(*optimizer, state);
  }
}
void TorchRunnerBase::load_scheduler(const State& state) { scheduler->load_state_dict(state); }

std::shared_ptr<void> TorchRunnerBase::gather_parameters(bool writes) {
  return parallelism().gather_full_state({}, writes);
}

std::shared_ptr<void> TorchRunnerBase::gather_full_state(bool writes) {
  std::vector<const optim::Optimizer*> owners;
  if (optimizer != nullptr) {
    owners.push_back(optimizer.get());
  }
  for (const auto& [name, owner] : optimizers) {
    if (owner != nullptr) {
      owners.push_back(owner.get());
    }
  }
  const bool evaluates = averages_ != nullptr && averages_->keeps_memory && averages_->applied;
  auto own = evaluates ? std::make_shared<Internals::Averages::Scope>(*this, false)
                       : nullptr;  // else averages would be gathered
  auto exposed = parallelism().gather_full_state(owners, writes);
  shard_states().set_exposed(exposed);
  exposed = writes ? exposed : Internals::Averages(*this).expose(std::move(exposed));
  if (own == nullptr) {
    return exposed;
  }
  return {own.get(), [own, exposed](void*) mutable {
            exposed.reset();
            own.reset();
          }};
}

TorchRunnerBase::Internals::ShardStates& TorchRunnerBase::shard_states() const {
  if (shard_states_ == nullptr) {
    shard_states_ = std::make_shared<Internals::ShardStates>(*this);
  }
  return *shard_states_;
}

ShardedState TorchRunnerBase::sharded_state(State state) const { return shard_states().with_places(std::move(state)); }

std::optional<ShardBox> TorchRunnerBase::shard_box(const std::string& path, at::IntArrayRef sizes) const {
  return shard_states().box_of(path, sizes);
}

void TorchRunnerBase::load_components(const State& checkpoint) {
  const Internals::Averages::Scope own(*this, false);
  const auto part = [&](std::string_view key, bool bound) -> const State* {
    const State* found = excluded_from_loading(key) ? nullptr : checkpoint.find(key);
    if (bound && !excluded_from_loading(key) && !is_finished()) {
      check<CheckpointError>(found != nullptr && !found->is_null(), "runner.load_checkpoint", "expected ", quote(key),
                             " in the checkpoint, got none; set `pretrained` to load only weights, or put ", quote(key),
                             " into checkpoint.exclude_from_loading");
    }
    return bound && found != nullptr && !found->is_null() ? found : nullptr;
  };
  if (const State* state = part("model", static_cast<bool>(model) || models.empty())) {
    load_model(*state);
  }
  if (const State* state = part("ema", static_cast<bool>(ema))) {
    load_ema(*state);
  }
  if (const State* state = part("optimizer", optimizer != nullptr)) {
    detail::load_part("optimizer", *state, [this](const State& saved) { load_optimizer(saved); });
  }
  if (const State* state = part("scheduler", scheduler != nullptr)) {
    detail::load_part("scheduler", *state, [this](const State& saved) { load_scheduler(saved); });
  }
  if (const State* state = part("scaler", scaler != nullptr)) {
    scaler->load_state_dict(*state);
  }
  if (const State* state = part("models", !models.empty())) {
    Internals::Learners(*this).load(*state);
  }
  Internals::Averages(*this).load("", checkpoint);
}

}  // namespace danling::inline v0
