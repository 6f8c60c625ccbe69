// Kinds of recorded steps: what tells them apart, and which can be recorded.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <danling/runner/batch_tensors.hpp>
#include <danling/telemetry/logger.hpp>

#include "runner/step_tapes.hpp"

namespace danling::inline v0 {
namespace {

constexpr std::int64_t many_kinds = 64;  // of which none came twice
constexpr std::size_t many_left = 1024;

std::uint64_t mixed(std::uint64_t hash, std::uint64_t number) { return hash * 1099511628211U + number; }

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && tensor.has_storage() && !tensor.is_nested();
}

/// Bytes from the first element to behind the last one.
std::ptrdiff_t extent(const at::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    last += (tensor.size(i) - 1) * tensor.stride(i);
  }
  return tensor.numel() == 0 ? 0 : (last + 1) * static_cast<std::ptrdiff_t>(tensor.element_size());
}

/// Of dtype, device, shape and strides: what the tape's calls take for granted of a tensor.
std::uint64_t layout_hash(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  std::uint64_t out = mixed(impl.dtype().itemsize(), static_cast<std::uint64_t>(impl.dim()));
  out = mixed(out, static_cast<std::uint64_t>(c10::typeMetaToScalarType(impl.dtype())));
  out = mixed(out, static_cast<std::uint64_t>(impl.device_type()));
  for (std::int64_t i = 0; i < (is_plain(tensor) ? impl.dim() : 0); ++i) {
    out = mixed(out, static_cast<std::uint64_t>(impl.size(i)));
    out = mixed(out, static_cast<std::uint64_t>(impl.stride(i)));
  }
  return out;
}

}  // namespace

void TorchRunnerBase::StepTapes::list_tensors() {
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
    const std::vector<at::Tensor> weights = several->shown_weights();
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

/// Changes when anything that tapes refer to is another object, or LibTorch would choose other kernels.
std::uint64_t TorchRunnerBase::StepTapes::identity() const {
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

/// A hash of which tensors want gradients and which modules train. A step that changes them cannot be replayed.
std::uint64_t TorchRunnerBase::StepTapes::modes() const {
  std::uint64_t out = 0;
  for (const at::Tensor& tensor : held_) {
    out = mixed(out, tensor.requires_grad() ? 1 : 2);
  }
  for (const auto& module : modules_) {
    out = mixed(out, module->is_training() ? 1 : 2);
  }
  return out;
}

void TorchRunnerBase::StepTapes::begin_loop() {
  list_tensors();
  const std::uint64_t now = identity();
  if (now != identity_) {
    identity_ = now;
    kinds_.clear();
  }
  ++loops_;
}

tape::Surroundings TorchRunnerBase::StepTapes::surroundings(const tape::Tensors& batch) const {
  tape::Surroundings out{.inputs = batch, .live = {}, .held = held_, .names = names_};
  for (const Learner& learner : runner_.learners_) {
    out.live.push_back(&learner.seed);
  }
  return out;
}

void TorchRunnerBase::StepTapes::write_key(RunnerMode mode, const detail::BatchParts& batch) {
  key_.clear();
  const auto add = [this](std::int64_t number) { key_.push_back(number); };
  add(static_cast<std::int64_t>(mode));
  add(runner_.step_variant());
  add(static_cast<std::int64_t>(runner_.criterion.version()));
  add(runner_.parallelism().recording_version());
  add(runner_.criterion.losses() != nullptr ? static_cast<std::int64_t>(runner_.criterion.losses()->weights_key()) : 0);
  add((runner_.active_metrics_ != nullptr ? 1 : 0) + (runner_.distills_ ? 2 : 0));
  add(static_cast<std::int64_t>(batch.others.size()));
  for (const std::int64_t other : batch.others) {
    add(other);
  }
  for (const at::Tensor& tensor : batch.tensors) {
    if (!tensor.defined() || !is_plain(tensor)) {
      add(tensor.defined() ? -2 : -1);  // the recording refuses the others
      continue;
    }
    // Tensors over one memory: where in it, since a recording does not tell them apart.
    for (const at::Tensor& other : batch.tensors) {
      if (&other == &tensor) {
        break;
      }
      if (other.defined() && is_plain(other) && tensor.is_alias_of(other)) {
        const auto between =
            static_cast<const char*>(tensor.const_data_ptr()) - static_cast<const char*>(other.const_data_ptr());
        const bool overlaps = between < extent(other) && -between < extent(tensor);
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
}

TorchRunnerBase::StepTapes::Kind& TorchRunnerBase::StepTapes::find(RunnerMode mode) {
  for (const auto& kind : kinds_) {
    if (kind->key == key_) {
      unknown_ = 0;
      return *kind;
    }
  }
  make_room();
  kinds_.push_back(std::make_unique<Kind>());
  kinds_.back()->key = key_;
  kinds_.back()->mode = mode;
  if (++unknown_ == many_kinds && said_.insert("kinds").second) {
    const std::string text = concat("no two of ", many_kinds, " steps are of one kind (shapes, numbers of the loss)");
    report_.refusals.push_back(text);
    runner_.logger().warning(concat("compile: steps are not replayed: ", text));
  }
  return *kinds_.back();
}

/// Kinds that run as they are cost no memory to speak of, and would be recorded anew for nothing. Of the others those
/// without a tape go first, then the least recently used.
void TorchRunnerBase::StepTapes::make_room() {
  const auto is_left = [](const auto& kind) { return kind->phase == Phase::eager; };
  const auto left = static_cast<std::size_t>(std::count_if(kinds_.begin(), kinds_.end(), is_left));
  const auto drop = [&](bool left_ones) {
    const auto first = std::min_element(kinds_.begin(), kinds_.end(), [&](const auto& a, const auto& b) {
      return std::tuple(is_left(a) != left_ones, a->tape != nullptr, a->used) <
             std::tuple(is_left(b) != left_ones, b->tape != nullptr, b->used);
    });
    if ((*first)->tape != nullptr && said_.insert("room").second) {
      runner_.logger().warning(
          concat("compile: there are more kinds of steps (shapes of a batch, training, evaluation) "
                 "than compile.cache_size = ",
                 config_.cache_size, ": tapes are dropped and recorded anew"));
    }
    kinds_.erase(first);
  };
  if (left >= many_left) {
    drop(true);
  }
  if (kinds_.size() - left >= static_cast<std::size_t>(config_.cache_size)) {
    drop(false);
  }
}

bool TorchRunnerBase::StepTapes::is_recordable(RunnerMode mode) {
  std::string why;
  if (runner_.has_adapters_) {
    why = "adapters replace weights of layers after each update (lora)";
  } else if (mode == RunnerMode::train) {
    if (runner_.learner_->repeats_step) {
      why = concat(runner_.learner_->optimizer->name(), " evaluates the loss several times in a step");
    }
  }
  if (why.empty() && !runner_.parallelism().group().alone() && !runner_.device().is_cpu()) {
    why = "gradients of several processes come in threads of the device";
  }
  why = why.empty() ? runner_.parallelism().why_not_recorded() : why;
  if (!why.empty()) {
    if (config_.fullgraph.value_or(false)) {
      fail<StateError>("compile", "expected a step that can be recorded (compile.fullgraph), got one in which ", why);
    }
    if (said_.insert(why).second) {
      report_.refusals.push_back(why);
      runner_.logger().warning(concat("compile: steps are not recorded: ", why));
    }
  }
  return why.empty();
}

}  // namespace danling::inline v0
