#include <danling/runner/model.hpp>

#include <c10/util/Type.h>
#include <torch/nn/module.h>

#include <danling/checkpoint/pretrained.hpp>
#include <danling/runner/model_input.hpp>

namespace danling::inline v0 {
namespace detail {

ModelConcept::~ModelConcept() = default;

std::string name_of(const std::type_info& type) { return c10::demangle(type.name()); }

void fail_input(const TypedCall& takes, const std::type_info& given) {
  fail<StateError>("runner.model", "expected a model whose forward takes ", name_of(given), ", got one that takes ",
                   takes.type == nullptr ? "something else" : name_of(*takes.type),
                   "; let model_input(batch), beside the batch's type, give what it takes, or override the steps");
}

void fail_input(const char* expected) {
  fail<DataError>("runner.step", "expected ", expected,
                  " in the batch for the model, got none; declare model_input(batch) beside the batch's type");
}

namespace {

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
  NnModel(std::shared_ptr<torch::nn::Module> module, void* object, const std::type_info& kind, Forward1 function)
      : module_(std::move(module)), object_(object), type_(&kind), forward_(function) {}

  at::Tensor forward(const at::Tensor& input) override {
    if (forward_ == nullptr) [[unlikely]] {
      fail<StateError>(
          "runner.model", "expected a module with forward(Tensor) -> Tensor, got '", module_->name(),
          "', whose forward takes or gives something else; let model_input(batch), beside the batch's type, give "
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

  void to(at::Device device) override { module_->to(device); }
  void train(bool on) override { module_->train(on); }
  const std::type_info& type() const override { return *type_; }
  void* get() override { return object_; }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  void* object_;
  const std::type_info* type_;
  Forward1 forward_;
};

}  // namespace

std::unique_ptr<ModelConcept> wrap_module(std::shared_ptr<torch::nn::Module> module, void* object,
                                          const std::type_info& type, Forward1 forward) {
  return std::make_unique<NnModel>(std::move(module), object, type, forward);
}

}  // namespace detail

NamedTensors ModelHandle::named_parameters() const { return concept_ ? concept_->named_parameters() : NamedTensors(); }

void ModelHandle::to(at::Device device) const {
  if (concept_) {
    concept_->to(device);
  }
}

void ModelHandle::train(bool on) const {
  if (concept_) {
    concept_->train(on);
  }
}

State ModelHandle::state_dict() const {
  State::Map map;
  if (concept_) {
    for (auto& [name, tensor] : concept_->named_state()) {
      map.set(name, tensor.detach());
    }
  }
  return map;
}

void ModelHandle::load_state_dict(const State& state) const {
  constexpr auto where = "runner.load_model";
  check<StateError>(concept_ != nullptr, where, "expected a model, got none; assign `model` first");
  check<CheckpointError>(state.is_map(), where, "expected a map of tensors, got ", state.kind());
  // Everything is compared before anything is written, so that a misfit leaves the model as it was.
  const State own = state_dict();
  const WeightMatch match = compare_weights(own, state);
  check<CheckpointError>(match.complete(), where, "expected weights of the same architecture, got ", match.misfits());
  copy_weights(own, match.weights);
}

}  // namespace danling::inline v0
