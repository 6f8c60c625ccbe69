#include <danling/nn/summary.hpp>

#include <memory>
#include <unordered_map>
#include <unordered_set>

#include <ATen/record_function.h>
#include <c10/util/ArrayRef.h>

#include <danling/core/error.hpp>

#include <nn/flops.hpp>
#include <nn/recorded_inputs.hpp>
#include <tensors/nested/impl.hpp>

namespace danling::inline v0::nn {
namespace {

using Storage = const c10::StorageImpl*;

Storage storage_of(const at::Tensor& tensor) {
  if (const auto* nested = danling::detail::nested(tensor)) {
    // Deferred values take no memory, and reading them here would change the pass.
    const auto& deferred = nested->deferred();
    return deferred != nullptr && !deferred->is_computed() ? nullptr : storage_of(nested->values());
  }
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

template <class Visit>
void visit_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      visit(tensor);
    }
  } else if (value.isOptionalTensorList() || value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      visit_tensors(item, visit);
    }
  }
}

/// Records the calls of one forward pass on this thread.
struct Recording {
  std::unordered_map<Storage, std::size_t> layer_of;
  std::vector<LayerSummary>* layers = nullptr;
  ModelSummary* sums = nullptr;
  std::vector<at::Tensor> kept;  // casts of parameters, kept so that their storages are not reused
  int depth = 0;
  bool in_formula = false;  // the current formula covers the calls inside
};

thread_local Recording* active_recording = nullptr;

struct Call : at::ObserverContext {
  std::vector<c10::IValue> inputs;
  FlopFormula formula = nullptr;
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  auto call = std::make_unique<Call>();
  if (active_recording != nullptr) {
    ++active_recording->depth;
    const auto inputs = recorded_inputs(function);
    call->inputs.assign(inputs.begin(), inputs.end());
    call->formula = active_recording->in_formula || has_nested(inputs) ? nullptr : flop_formula(function.name());
    active_recording->in_formula = active_recording->in_formula || call->formula != nullptr;
  }
  return call;
}

void finish(Recording& recording, const Call& call, const at::RecordFunction& function) {
  const int depth = recording.depth--;
  recording.in_formula = recording.in_formula && call.formula == nullptr;
  std::optional<std::size_t> layer;
  bool only_parameters = true;
  std::unordered_set<Storage> given;
  for (const auto& input : call.inputs) {
    visit_tensors(input, [&](const at::Tensor& tensor) {
      const Storage storage = storage_of(tensor);
      const auto found = recording.layer_of.find(storage);
      given.insert(storage);
      if (found == recording.layer_of.end()) {
        only_parameters = only_parameters && !tensor.defined();
      } else if (!layer) {
        layer = found->second;
      }
    });
  }
  at::Tensor first;
  for (const auto& output : function.outputs()) {
    visit_tensors(output, [&](const at::Tensor& tensor) {
      if (!first.defined()) {
        first = tensor;
      }
      const Storage storage = storage_of(tensor);
      if (storage == nullptr || given.contains(storage)) {
        return;
      }
      if (layer && only_parameters) {
        recording.layer_of[storage] = *layer;
        recording.kept.push_back(tensor);
      } else if (depth == 1) {
        recording.sums->output_bytes += static_cast<std::int64_t>(tensor.nbytes());
      }
    });
  }
  if (!first.defined()) {
    return;
  }
  if (layer && !only_parameters && depth == 1) {
    (*recording.layers)[*layer].output = first.sizes().vec();
  }
  if (call.formula != nullptr) {
    const std::int64_t flops = call.formula(call.inputs, first.sizes()).value_or(0);
    (layer ? (*recording.layers)[*layer].flops : recording.sums->other_flops) += flops;
    recording.sums->flops += flops;
  }
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (active_recording != nullptr) {
    finish(*active_recording, *static_cast<Call*>(context), function);
  }
}

class Observed {
 public:
  explicit Observed(Recording& recording) {
    active_recording = &recording;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(on_start, on_end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~Observed() {
    at::removeCallback(handle_);
    active_recording = nullptr;
  }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
};

}  // namespace

ModelSummary summarize(const std::vector<ModuleTensors>& modules, const std::function<void()>& forward) {
  ModelSummary out;
  Recording recording;
  recording.layers = &out.layers;
  recording.sums = &out;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const ModuleTensors& module : modules) {
    LayerSummary& layer = out.layers.emplace_back(LayerSummary{module.name, module.type});
    const auto add = [&](const at::Tensor& tensor) {
      if (const Storage storage = storage_of(tensor)) {
        recording.layer_of.try_emplace(storage, out.layers.size() - 1);
      }
      return tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second;
    };
    for (const at::Tensor& parameter : module.parameters) {
      if (add(parameter)) {
        const auto bytes = static_cast<std::int64_t>(parameter.nbytes());
        layer.parameters += parameter.numel();
        layer.trainable += parameter.requires_grad() ? parameter.numel() : 0;
        out.parameter_bytes += bytes;
        out.gradient_bytes += parameter.requires_grad() ? bytes : 0;
      }
    }
    for (const at::Tensor& buffer : module.buffers) {
      if (add(buffer)) {
        out.buffer_bytes += static_cast<std::int64_t>(buffer.nbytes());
      }
    }
    for (const at::Tensor& tensor : module.derived) {
      add(tensor);
    }
    out.parameters += layer.parameters;
    out.trainable += layer.trainable;
  }
  if (forward) {
    const Observed observed(recording);
    forward();
  }
  return out;
}

}  // namespace danling::inline v0::nn
