#include <danling/runner/model.hpp>

#include <torch/nn/module.h>

#include <danling/checkpoint/pretrained.hpp>
#include <danling/nn/lora.hpp>
#include <danling/nn/summary.hpp>
#include <danling/runner/model_input.hpp>
#include <danling/runner/model_output.hpp>
#include <danling/tensors/detail/describe.hpp>

namespace danling::inline v0 {
namespace detail {

ModelConcept::~ModelConcept() = default;

State ModelConcept::call(const State&) { fail<StateError>("runner.model", "expected a TorchScript model"); }

void ModelConcept::save_script(const std::filesystem::path& path) const {
  fail<StateError>("runner.save_script", "expected a TorchScript model for file ", quote(path.string()),
                   ", got one of another kind; save its state_dict()");
}

void fail_forward(const TypedCall& model, const std::type_info& input, const std::type_info& output) {
  if (model.input != nullptr && *model.input == input) {
    fail<StateError>("runner.model", "expected a model whose forward returns ", name_of(output),
                     ", got one that returns ", name_of(*model.output),
                     "; name that as the runner's prediction, BasicTorchRunner<Batch, ", name_of(*model.output),
                     ">, or override the steps");
  }
  fail<StateError>(
      "runner.model", "expected a model whose forward takes ", name_of(input), ", got one that takes ",
      model.input == nullptr ? "something else" : name_of(*model.input),
      "; let model_input(batch), in the namespace of the batch's type, return what it takes, or override the steps");
}

void fail_as(const std::type_info& type, const ModelConcept* model) {
  fail<StateError>("runner.model", "expected a model of type ", name_of(type), " for as<T>(), got ",
                   model == nullptr ? "none; assign `model`" : name_of(model->type()));
}

const State& input_of(const State& batch) {
  const bool sequence = batch.is_list() || batch.is_tuple();
  if (!sequence && !batch.is_map()) {
    return batch;
  }
  const State* found = sequence ? item_of(batch, 0) : entry_of(batch, "input");
  if (found == nullptr) {
    fail_input(sequence ? "at least one part" : "an entry 'input'");
  }
  return *found;
}

const State& target_of(const State& batch) {
  static const State none;
  const State* found = batch.is_map() ? entry_of(batch, "target") : item_of(batch, 1);
  return found == nullptr ? none : *found;
}

const State& output_of(const State& prediction) {
  const bool sequence = prediction.is_list() || prediction.is_tuple();
  if (!sequence && !prediction.is_map()) {
    return prediction;
  }
  const State* found = sequence ? item_of(prediction, 0) : entry_of(prediction, "output");
  if (found == nullptr) {
    fail_output(describe(prediction));
  }
  return *found;
}

void fail_output(const std::string& prediction) {
  fail<StateError>("runner.step", "expected a tensor 'output' in the prediction for metrics or criterion, got ",
                   prediction, "; declare model_output(prediction) in the namespace of the prediction's type");
}

void fail_input(const char* expected) {
  fail<DataError>(
      "runner.step", "expected ", expected,
      " in the batch for the model, got none; declare model_input(batch) in the namespace of the batch's type");
}

std::vector<nn::ModuleTensors> ModelConcept::modules() const { return {}; }

namespace {

// Returns `Linear` for torch::nn::LinearImpl.
std::string type_of(const torch::nn::Module& module) {
  std::string name = module.name();
  if (const std::string_view space = "torch::nn::"; name.starts_with(space)) {
    name.erase(0, space.size());
  }
  return name.ends_with("Impl") ? name.substr(0, name.size() - 4) : name;
}

// Python's order: a module's parameters, then its buffers, then its children.
void collect(const torch::nn::Module& module, const std::string& prefix, NamedTensors& out) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (item.value().defined()) {
      out.emplace_back(prefix + item.key(), item.value());
    }
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item.value().defined()) {
      out.emplace_back(prefix + item.key(), item.value());
    }
  }
  for (const auto& child : module.named_children()) {
    collect(*child.value(), prefix + child.key() + ".", out);
  }
}

class NnModel final : public ModelConcept {
 public:
  NnModel(std::shared_ptr<torch::nn::Module> module, void* object, const std::type_info& kind, Forward1 function,
          const TypedCall& typed)
      : module_(std::move(module)), object_(object), type_(&kind), forward_(function), typed_(typed) {}

  at::Tensor forward(const at::Tensor& input) override {
    if (forward_ == nullptr) [[unlikely]] {
      if (typed_.takes<at::Tensor>()) {
        fail_forward(typed_, typeid(at::Tensor), typeid(at::Tensor));
      }
      fail<StateError>("runner.model", "expected a module with forward(Tensor) -> Tensor, got '", module_->name(),
                       "', whose forward takes or returns another type; let model_input(batch), in the namespace of "
                       "the batch's type, return "
                       "what it takes, or override train_step, evaluate_step and infer_step and call it there through "
                       "model.as<...>()");
    }
    return forward_(object_, input);
  }

  NamedTensors named_parameters() const override {
    NamedTensors out;
    for (const auto& item : module_->named_parameters()) {
      if (item.value().defined()) {
        out.emplace_back(item.key(), item.value());
      }
    }
    return out;
  }

  NamedTensors named_state() const override {
    NamedTensors out;
    collect(*module_, "", out);
    return out;
  }

  std::vector<nn::ModuleTensors> modules() const override {
    std::vector<nn::ModuleTensors> out;
    for (const auto& item : module_->named_modules()) {
      const torch::nn::Module& module = *item.value();
      nn::ModuleTensors tensors{.name = item.key(), .type = type_of(module), .parameters = {}, .buffers = {}};
      for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
        tensors.parameters.push_back(parameter.value());
      }
      for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
        tensors.buffers.push_back(buffer.value());
      }
      if (module.children().empty() || !tensors.parameters.empty() || !tensors.buffers.empty()) {
        out.push_back(std::move(tensors));
      }
    }
    return out;
  }

  void to(at::Device device) override { module_->to(device); }
  void train(bool on) override { module_->train(on); }
  const std::type_info& type() const override { return *type_; }
  void* get() override { return object_; }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  void* object_;
  const std::type_info* type_;
  Forward1 forward_;
  TypedCall typed_;
};

/// Converts the floating-point outputs of another model to one dtype. A decorator, so that other models pay nothing.
class ConvertingModel final : public ModelConcept {
 public:
  ConvertingModel(std::shared_ptr<ModelConcept> model, at::ScalarType dtype)
      : model_(std::move(model)), dtype_(dtype) {}
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor out = model_->forward(input);
    return out.is_floating_point() ? out.to(dtype_) : out;
  }
  State call(const State& input) override { return model_->call(input); }
  NamedTensors named_parameters() const override { return model_->named_parameters(); }
  NamedTensors named_state() const override { return model_->named_state(); }
  void to(at::Device device) override { model_->to(device); }
  void train(bool on) override { model_->train(on); }
  const std::type_info& type() const override { return model_->type(); }
  void* get() override { return model_->get(); }
  bool is_script() const override { return model_->is_script(); }
  void save_script(const std::filesystem::path& path) const override { model_->save_script(path); }
  std::vector<nn::ModuleTensors> modules() const override { return model_->modules(); }

 private:
  std::shared_ptr<ModelConcept> model_;
  at::ScalarType dtype_;
};

}  // namespace

std::unique_ptr<ModelConcept> wrap_module(std::shared_ptr<torch::nn::Module> module, void* object,
                                          const std::type_info& type, Forward1 forward, const TypedCall& typed) {
  return std::make_unique<NnModel>(std::move(module), object, type, forward, typed);
}

}  // namespace detail

void ModelHandle::set_output_dtype(at::ScalarType dtype) {
  if (dtype != at::ScalarType::Undefined && dtype != output_dtype_) {
    output_dtype_ = dtype;
    concept_ = std::make_shared<detail::ConvertingModel>(concept_, dtype);
  }
}

bool ModelHandle::is_trainable() const {
  const NamedTensors parameters = named_parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const auto& item) { return item.second.requires_grad(); });
}

NamedTensors ModelHandle::named_parameters() const {
  NamedTensors out = concept_ ? concept_->named_parameters() : NamedTensors();
  if (lora_ != nullptr) {
    const auto adapters = lora_->named_parameters();
    out.insert(out.end(), adapters.begin(), adapters.end());
  }
  return out;
}

std::vector<nn::ModuleTensors> ModelHandle::modules() const {
  std::vector<nn::ModuleTensors> out = concept_ ? concept_->modules() : std::vector<nn::ModuleTensors>();
  for (const auto& layer : lora_ == nullptr ? std::vector<nn::LoraAdapters::Layer>() : lora_->layers()) {
    for (nn::ModuleTensors& module : out) {
      if (module.name == layer.name && layer.weight != nullptr) {
        module.parameters.insert(module.parameters.end(), {layer.a, layer.b});
        module.derived.push_back(*layer.weight);
      }
    }
  }
  return out;
}

void ModelHandle::add_lora(const nn::LoraOptions& options, const std::string& section) {
  check<ConfigError>(module_ != nullptr, "runner.add_lora", "expected a torch::nn module for ", section, ", got ",
                     is_script() ? "a TorchScript model" : "another kind of model");
  check<StateError>(lora_ == nullptr, "runner.add_lora", "expected a model without adapters, got one with");
  lora_ = std::make_shared<nn::LoraAdapters>(*module_, options, section);
}

NamedTensors ModelHandle::named_state() const {
  NamedTensors out = concept_ ? concept_->named_state() : NamedTensors();
  if (lora_ != nullptr) {
    const auto adapters = lora_->named_parameters();
    out.insert(out.end(), adapters.begin(), adapters.end());
  }
  return out;
}

void ModelHandle::to(at::Device device) const {
  if (concept_) {
    concept_->to(device);
  }
  if (lora_ != nullptr) {
    lora_->to(device);
  }
}

void ModelHandle::train(bool on) const {
  if (concept_) {
    concept_->train(on);
  }
}

void ModelHandle::save_script(const std::filesystem::path& path) const {
  check<StateError>(concept_ != nullptr, "runner.save_script",
                    "expected a model, got none; assign `model`, or check the name in `models[name]`");
  concept_->save_script(path);
}

State ModelHandle::state_dict() const {
  State::Map map;
  for (auto& [name, tensor] : named_state()) {
    map.set(name, tensor.detach());
  }
  return map;
}

void ModelHandle::load_state_dict(const State& state) const {
  constexpr auto where = "runner.load_model";
  check<StateError>(concept_ != nullptr, where,
                    "expected a model, got none; assign `model`, or check the name in `models[name]`");
  check<CheckpointError>(state.is_map(), where, "expected a map of tensors, got ", state.kind());
  State own = state_dict();
  const bool without_adapters = lora_ != nullptr && !lora_->is_in(state);
  if (without_adapters) {
    own = lora_->merge(own);  // uses the model's names
    for (auto& [name, tensor] : concept_->named_state()) {
      if (own.find(name) != nullptr) {
        own[name] = tensor.detach();
      }
    }
  }
  // Compares everything before it writes, so that a mismatch leaves the model unchanged.
  const WeightMatch match = compare_weights(own, state);
  check<CheckpointError>(match.complete(), where, "expected weights of the same architecture, got ",
                         match.mismatch_summary());
  copy_weights(own, match.weights);
  if (without_adapters) {
    lora_->reset();
  } else if (lora_ != nullptr) {
    lora_->update();
  }
}

}  // namespace danling::inline v0
