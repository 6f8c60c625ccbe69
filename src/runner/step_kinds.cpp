// Kinds of recorded steps: how they are distinguished, and which can be recorded.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <danling/runner/detail/batch_tensors.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/step_tapes.hpp>

namespace danling::inline v0 {
namespace {

constexpr std::size_t many_left = 1024;
constexpr std::int64_t idle = 16;  // multiple of cache_size: steps after which a kind can be replaced

std::uint64_t mixed(std::uint64_t hash, std::uint64_t number) { return hash * 1099511628211U + number; }

/// Hash of dtype, device, shape and strides, which the tape's calls require of a tensor.
std::uint64_t layout_hash(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  std::uint64_t out = mixed(impl.dtype().itemsize(), static_cast<std::uint64_t>(impl.dim()));
  out = mixed(out, static_cast<std::uint64_t>(c10::typeMetaToScalarType(impl.dtype())));
  out = mixed(out, static_cast<std::uint64_t>(impl.device_type()));
  for (std::int64_t i = 0; i < (tape::is_strided(tensor) ? impl.dim() : 0); ++i) {
    out = mixed(out, static_cast<std::uint64_t>(impl.size(i)));
    out = mixed(out, static_cast<std::uint64_t>(impl.stride(i)));
  }
  return out;
}

}  // namespace

void TorchRunnerBase::Internals::StepTapes::list_tensors() {
  held_.clear();
  buffers_.clear();
  names_.clear();
  modules_.clear();
  const auto add_module = [this](const std::shared_ptr<torch::nn::Module>& module) {
    if (module != nullptr) {
      for (auto& part : module->modules()) {
        modules_.push_back(std::move(part));
      }
    }
  };
  const auto add = [&](const ModelHandle& handle, const std::string& prefix) {
    if (!handle) {
      return;
    }
    std::set<const void*> parameters;
    for (const auto& [name, tensor] : handle.named_parameters()) {
      parameters.insert(tensor.unsafeGetTensorImpl());
      held_.push_back(tensor);
      names_.push_back(prefix + name);
    }
    for (const auto& [name, tensor] : handle.named_state()) {
      if (tensor.defined() && !parameters.contains(tensor.unsafeGetTensorImpl())) {
        held_.push_back(tensor);
        names_.push_back(prefix + name);
        buffers_.push_back(tensor);
      }
    }
    add_module(handle.module());
  };
  add(runner_.model, "");
  for (const auto& [name, handle] : runner_.models) {
    add(handle, name + ".");
  }
  add(runner_.ema, "ema.");
  add(runner_.teacher, "teacher.");
  std::vector<std::shared_ptr<torch::nn::Module>> losses{runner_.criterion.module()};
  if (const auto& several = runner_.criterion.losses(); several != nullptr) {
    losses = several->modules();
    const std::vector<at::Tensor> weights = several->weight_tensors();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      held_.push_back(weights[i]);
      names_.push_back(concat("losses.", several->names().at(i), ".weight"));
    }
  }
  for (const auto& module : losses) {
    if (module == nullptr) {
      continue;
    }
    for (const auto& item : module->named_parameters()) {
      held_.push_back(item.value());
      names_.push_back("criterion." + item.key());
    }
    for (const auto& item : module->named_buffers()) {
      held_.push_back(item.value());
      names_.push_back("criterion." + item.key());
      buffers_.push_back(item.value());
    }
    add_module(module);
  }
}

/// Changes when any object that tapes refer to is replaced, or LibTorch would choose other kernels.
std::uint64_t TorchRunnerBase::Internals::StepTapes::component_hash() const {
  std::uint64_t out = runner_.criterion.version() * 2 + (at::globalContext().deterministicAlgorithms() ? 1 : 0);
  out = mixed(out, static_cast<std::uint64_t>(at::get_num_threads()));
  const auto add = [&](const void* address) { out = mixed(out, reinterpret_cast<std::uintptr_t>(address)); };
  for (const at::Tensor& tensor : held_) {
    add(tensor.unsafeGetTensorImpl());
  }
  for (const auto& module : modules_) {
    add(module.get());
  }
  for (const Learner& learner : runner_.learners_) {
    add(&learner);
    add(learner.optimizer.get());
  }
  return out;
}

/// Hash of which tensors require gradients and which modules train. A step that changes it cannot be replayed.
std::uint64_t TorchRunnerBase::Internals::StepTapes::mode_hash() const {
  std::uint64_t out = 0;
  for (const at::Tensor& tensor : held_) {
    out = mixed(out, tensor.requires_grad() ? 1 : 2);
  }
  for (const auto& module : modules_) {
    out = mixed(out, module->is_training() ? 1 : 2);
  }
  return out;
}

/// Hash of the objects that were assigned to the runner. Cheap, since each step computes it.
std::uint64_t TorchRunnerBase::Internals::StepTapes::model_hash() const {
  std::uint64_t out = 1;
  const auto add = [&](const ModelHandle& handle) {
    out = mixed(out, reinterpret_cast<std::uintptr_t>(handle.address()));
  };
  add(runner_.model);
  for (const auto& model : runner_.models) {
    add(model.second);
  }
  add(runner_.ema);
  add(runner_.teacher);
  return out;
}

void TorchRunnerBase::Internals::StepTapes::begin_loop() {
  ++loops_;
  is_stale_ = true;  // an evaluation within a step: its tapes are in use
}

void TorchRunnerBase::Internals::StepTapes::refresh() {
  const std::uint64_t models = model_hash();
  if (!std::exchange(is_stale_, false) && models == models_) {
    return;
  }
  models_ = models;
  list_tensors();
  const std::uint64_t now = component_hash();
  if (now != components_) {
    components_ = now;
    if (std::any_of(kinds_.begin(), kinds_.end(), [](const auto& kind) { return kind->replays > 0; })) {
      runner_.logger().info("compile: the model has other parameters, modules or optimizers: steps are recorded again");
    }
    kinds_.clear();
  }
}

/// Hash of the optimizers' numbers that a program may change by hand.
std::uint64_t TorchRunnerBase::Internals::StepTapes::setting_hash() const {
  std::uint64_t out = 0;
  for (const Learner& learner : runner_.learners_) {
    if (learner.optimizer == nullptr) {
      continue;
    }
    for (const optim::ParamGroup& group : std::as_const(*learner.optimizer).param_groups()) {
      out = mixed(mixed(out, std::bit_cast<std::uint64_t>(group.lr)), std::bit_cast<std::uint64_t>(group.weight_decay));
    }
  }
  return out;
}

void TorchRunnerBase::Internals::StepTapes::expect_settings() { settings_ = setting_hash(); }

void TorchRunnerBase::Internals::StepTapes::check_settings() const {
  if (observing_ != nullptr && setting_hash() != settings_) {
    observing_->mark_unrecordable("it changes a learning rate or weight decay; only a callback or a schedule may");
  }
}

tape::StepTensors TorchRunnerBase::Internals::StepTapes::surroundings(const tape::Tensors& batch) const {
  tape::StepTensors out{.inputs = batch, .live = {}, .held = held_, .names = names_};
  for (const Learner& learner : runner_.learners_) {
    out.live.push_back(&learner.seed);
  }
  return out;
}

void TorchRunnerBase::Internals::StepTapes::write_key(RunnerMode mode, const detail::BatchParts& batch) {
  key_.clear();
  const auto add = [this](std::int64_t number) { key_.push_back(number); };
  add(static_cast<std::int64_t>(mode));
  add(runner_.step_variant());
  add(static_cast<std::int64_t>(runner_.criterion.version()));
  add(runner_.parallelism().recording_version());
  add(runner_.criterion.losses() != nullptr ? static_cast<std::int64_t>(runner_.criterion.losses()->weights_key()) : 0);
  add(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(runner_.active_metrics_)));
  add((runner_.predicted_metrics_ != nullptr ? 1 : 0) + (runner_.distills_ ? 2 : 0));
  add(static_cast<std::int64_t>(batch.others.size()));
  for (const std::int64_t other : batch.others) {
    add(other);
  }
  for (const at::Tensor& tensor : batch.tensors) {
    if (!tape::is_strided(tensor)) {
      add(tensor.defined() ? -2 : -1);  // the recording refuses other tensors
      continue;
    }
    // Tensors that share memory: their offsets, since a recording does not distinguish them.
    for (const at::Tensor& other : batch.tensors) {
      if (&other == &tensor) {
        break;
      }
      if (tape::is_strided(other) && tensor.is_alias_of(other)) {
        const auto between =
            static_cast<const char*>(tensor.const_data_ptr()) - static_cast<const char*>(other.const_data_ptr());
        const bool overlaps = between < tape::layout_of(other).bytes() && -between < tape::layout_of(tensor).bytes();
        add(overlaps ? between : -1);
      }
    }
    add(tensor.dim());
    add(static_cast<std::int64_t>(tensor.scalar_type()));
    add(static_cast<std::int64_t>(tensor.device().type()) * 256 + tensor.device().index());
    add((tensor.requires_grad() ? 1 : 0) + (tensor.is_inference() ? 2 : 0) + (tensor.is_conj() ? 4 : 0) +
        (tensor.is_neg() ? 8 : 0));
    for (const std::int64_t size : tensor.sizes()) {
      add(size);
    }
    for (const std::int64_t stride : tensor.strides()) {
      add(stride);
    }
  }
  std::int64_t bits = 0;
  int used = 0;
  const auto add_bit = [&](bool bit) {
    bits = bits * 2 + (bit ? 1 : 0);
    if (++used == 62) {
      add(bits);
      bits = 0;
      used = 0;
    }
  };
  std::uint64_t layouts = 0;
  for (const at::Tensor& tensor : held_) {
    const at::Tensor& gradient = tensor.grad();
    add_bit(tensor.requires_grad());
    add_bit(gradient.defined());
    layouts = mixed(layouts, layout_hash(tensor));
    if (gradient.defined()) {
      layouts = mixed(layouts, layout_hash(gradient));
    }
  }
  for (const auto& module : modules_) {
    add_bit(module->is_training());
  }
  add(bits);
  add(static_cast<std::int64_t>(layouts));
  add(static_cast<std::int64_t>(sharing_hash()));
}

/// Hash of which tensors and gradients of the model share a storage, since a recording does not distinguish them. 0:
/// none.
std::uint64_t TorchRunnerBase::Internals::StepTapes::sharing_hash() {
  storages_.clear();
  const auto add = [this](const at::Tensor& tensor) {
    if (tape::is_strided(tensor)) {
      storages_.push_back(tensor.storage().unsafeGetStorageImpl());
    }
  };
  for (const at::Tensor& tensor : held_) {
    add(tensor);
    add(tensor.grad());
  }
  sorted_storages_ = storages_;
  std::sort(sorted_storages_.begin(), sorted_storages_.end());
  if (std::adjacent_find(sorted_storages_.begin(), sorted_storages_.end()) == sorted_storages_.end()) {
    return 0;
  }
  std::uint64_t out = 1;
  for (const void* const storage : storages_) {
    out = mixed(out,
                static_cast<std::uint64_t>(std::find(storages_.begin(), storages_.end(), storage) - storages_.begin()));
  }
  return out;
}

/// @return null for a new kind without room
TorchRunnerBase::Internals::StepTapes::Kind* TorchRunnerBase::Internals::StepTapes::find(RunnerMode mode) {
  for (const auto& kind : kinds_) {
    if (kind->key == key_) {
      return kind.get();
    }
  }
  if (!make_room()) {
    return nullptr;
  }
  kinds_.push_back(std::make_unique<Kind>());
  kinds_.back()->key = key_;
  kinds_.back()->mode = mode;
  return kinds_.back().get();
}

bool TorchRunnerBase::Internals::StepTapes::fits_counts(const Kind& kind, const std::vector<std::int64_t>& counts) {
  bool out = true;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    out = out && (!kind.counts_bind[i] || kind.counts[i] == counts[i]);
  }
  return out;
}

/// If kinds alternate, dropping the oldest would drop each before its replay; so only kinds that have not occurred for
/// long are dropped. Eager kinds cost almost no memory, and recording them again would be useless: they have separate
/// room.
bool TorchRunnerBase::Internals::StepTapes::make_room() {
  const auto is_left = [](const auto& kind) { return kind->phase == Phase::eager; };
  const auto left = static_cast<std::size_t>(std::count_if(kinds_.begin(), kinds_.end(), is_left));
  const auto oldest = [&](bool left_ones) {
    return std::min_element(kinds_.begin(), kinds_.end(), [&](const auto& a, const auto& b) {
      return std::pair(is_left(a) != left_ones, a->last_step) < std::pair(is_left(b) != left_ones, b->last_step);
    });
  };
  if (left >= many_left) {
    kinds_.erase(oldest(true));
  }
  if (kinds_.size() - left < static_cast<std::size_t>(config_.cache_size)) {
    return true;
  }
  const auto candidate = oldest(false);
  if (steps_ - (*candidate)->last_step > idle * config_.cache_size) {
    kinds_.erase(candidate);
    return true;
  }
  if (logged_.insert("room").second) {
    const std::string text = concat(
        "there are more kinds of steps (shapes of a batch, numbers in it, training, "
        "evaluation) than compile.cache_size = ",
        config_.cache_size);
    report_.refusals.push_back(text);
    runner_.logger().warning(concat("compile: ", text, ": the others run eagerly"));
  }
  return false;
}

bool TorchRunnerBase::Internals::StepTapes::is_recordable(RunnerMode mode) {
  std::string why;
  const char* steps = "steps";
  if (runner_.has_adapters_) {
    why = "adapters replace weights of layers after each update (lora)";
  } else if (mode == RunnerMode::train) {
    if (runner_.learner_->repeats_step) {
      why = concat(runner_.learner_->optimizer->name(), " evaluates the loss several times in a step");
      steps = "training steps";
    }
  }
  if (why.empty() && !runner_.device().is_cpu()) {
    why = concat("the device is ", runner_.device().str(), ", and only steps on the CPU are recorded");
  }
  why = why.empty() ? runner_.parallelism().unrecordable_reason() : why;
  if (!why.empty()) {
    if (config_.fullgraph.value_or(false)) {
      fail<StateError>("compile", "expected a step that can be recorded (compile.fullgraph), got one in which ", why);
    }
    if (logged_.insert(why).second) {
      report_.refusals.push_back(why);
      runner_.logger().warning(concat("compile: ", steps, " are not recorded: ", why));
    }
  }
  return why.empty();
}

}  // namespace danling::inline v0
