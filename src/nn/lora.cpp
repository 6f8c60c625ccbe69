#include <danling/nn/lora.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/nn/lora_linear.hpp>

#include <core/join_first.hpp>
#include <core/name_pattern.hpp>
#include <nn/adapter_names.hpp>

namespace danling::inline v0::nn {
namespace {

at::Tensor merged(const at::Tensor& base, const at::Tensor& a, const at::Tensor& b, double scale) {
  return base.scalar_type() == a.scalar_type() ? at::addmm(base, b, a, 1.0, scale)
                                               : base + (at::mm(b, a) * scale).to(base.scalar_type());
}

// Keeps A and B after a backward pass, so that several backward passes can use the weight: micro-batches, losses of
// several models. Autograd's formula would free them in the first pass.
struct MergedWeight : torch::autograd::Function<MergedWeight> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& base, const at::Tensor& a,
                            const at::Tensor& b, double scale) {
    context->saved_data["a"] = a.detach();
    context->saved_data["b"] = b.detach();
    context->saved_data["versions"] = static_cast<std::int64_t>(a._version()) + b._version();
    context->saved_data["scale"] = scale;
    return merged(base, a, b, scale);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor a = context->saved_data["a"].toTensor();
    const at::Tensor b = context->saved_data["b"].toTensor();
    check<StateError>(context->saved_data["versions"].toInt() == static_cast<std::int64_t>(a._version()) + b._version(),
                      "nn.lora",
                      "expected a backward pass before the adapters change, got one after; repeat the forward pass");
    const at::Tensor gradient = (gradients[0] * context->saved_data["scale"].toDouble()).to(a.scalar_type());
    return {at::Tensor(), b.t().mm(gradient), gradient.mm(a.t()), at::Tensor()};
  }
};

std::vector<danling::detail::NamePattern> compile(const std::optional<std::vector<std::string>>& patterns,
                                                  const std::string& where) {
  std::vector<danling::detail::NamePattern> out;
  for (const auto& pattern : patterns.value_or(std::vector<std::string>())) {
    check<ConfigError>(!pattern.empty(), where, "expected a pattern, got none");
    out.emplace_back(pattern, where);
  }
  return out;
}

// The names that any pattern matches. Each pattern must have a match.
std::set<std::string> matches(const std::vector<danling::detail::NamePattern>& patterns,
                              const std::vector<std::string>& names, const std::string& where, std::string_view what) {
  std::set<std::string> out;
  for (const auto& pattern : patterns) {
    bool found = false;
    for (const auto& name : names) {
      if (pattern.is_in(name)) {
        out.insert(name);
        found = true;
      }
    }
    check<ConfigError>(found, where, "expected a pattern that matches ", what, " (",
                       names.empty() ? "the model has none" : danling::detail::join_first(names, 4), "), got ",
                       quote(pattern.text()), did_you_mean(pattern.text(), names));
  }
  return out;
}

// Registered modules by name; a module with several names occurs once, under the first.
std::vector<std::pair<std::string, torch::nn::Module*>> modules_of(torch::nn::Module& module) {
  std::vector<std::pair<std::string, torch::nn::Module*>> out = {{"", &module}};
  std::set<torch::nn::Module*> seen = {&module};
  for (const auto& item : module.named_modules(/*name_prefix=*/{}, /*include_self=*/false)) {
    if (seen.insert(item.value().get()).second) {
      out.emplace_back(item.key(), item.value().get());
    }
  }
  return out;
}

}  // namespace

LoraAdapters::LoraAdapters(torch::nn::Module& module, const LoraOptions& options, std::string_view section)
    : options_(options), section_(section) {
  const std::string where = section_;
  check<ConfigError>(options_.target_modules && !options_.target_modules->empty(), where,
                     "expected target_modules, got none");
  add_layers(module);
  freeze_rest(module);
  update();
}

void LoraAdapters::add_layers(torch::nn::Module& module) {
  std::vector<std::string> names;
  std::map<std::string, torch::nn::Module*> linear;
  for (const auto& [name, child] : modules_of(module)) {
    if (dynamic_cast<torch::nn::LinearImpl*>(child) != nullptr || dynamic_cast<LoraLinearImpl*>(child) != nullptr) {
      names.push_back(name);
      linear[name] = child;
    }
  }
  const std::string where = section_ + ".target_modules";
  const auto chosen = matches(compile(options_.target_modules, where), names, where, "a linear layer");
  std::unordered_map<const c10::TensorImpl*, std::vector<std::string>> owners;
  for (const auto& item : module.named_parameters()) {
    owners[item.value().unsafeGetTensorImpl()].push_back(item.key());
  }
  const std::int64_t r = options_.r.value_or(8);
  const double scale = lora_scale(options_);
  for (const auto& name : names) {
    if (!chosen.contains(name)) {
      continue;
    }
    if (auto* own = dynamic_cast<LoraLinearImpl*>(linear.at(name))) {
      check<ConfigError>(own->lora_A.size(0) == r && own->scale == scale, section_,
                         "expected the r and scale of layer ", quote(name), ", ", own->lora_A.size(0), " and ",
                         own->scale, ", got ", r, " and ", scale, "; build the layer with these options");
      layers_.push_back({name, own->weight, own->lora_A, own->lora_B, scale, nullptr});
      continue;
    }
    check<ConfigError>(options_.lora_dropout.value_or(0.0) == 0.0, section_, "expected lora_dropout 0 for layer ",
                       quote(name), ", got ", *options_.lora_dropout, "; only nn::LoraLinear has dropout");
    auto& layer = dynamic_cast<torch::nn::LinearImpl&>(*linear.at(name));
    // The registered parameter: the member may hold a weight with earlier adapters.
    const at::Tensor base = layer.named_parameters(/*recurse=*/false)["weight"];
    const auto& tied = owners[base.unsafeGetTensorImpl()];
    check<ConfigError>(tied.size() <= 1, where, "expected linear layers with untied weights, got ", quote(name),
                       ", whose weight is shared by ", join(tied));
    const auto options =
        base.options().dtype(base.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).requires_grad(false);
    const double bound = 1 / std::sqrt(static_cast<double>(base.size(1)));
    at::Tensor a = at::empty({r, base.size(1)}, options).uniform_(-bound, bound).set_requires_grad(true);
    at::Tensor b = at::zeros({base.size(0), r}, options).set_requires_grad(true);
    layers_.push_back({name, base, std::move(a), std::move(b), scale, &layer.weight});
  }
}

void LoraAdapters::freeze_rest(torch::nn::Module& module) {
  std::set<const c10::TensorImpl*> adapters;
  std::set<std::string> adapted;
  for (const Layer& layer : layers_) {
    adapters.insert({layer.a.unsafeGetTensorImpl(), layer.b.unsafeGetTensorImpl()});
    adapted.insert(layer.name);
  }
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) {
    names.push_back(item.key());
  }
  const std::string where = section_ + ".modules_to_save";
  const auto saved = matches(compile(options_.modules_to_save, where), names, where, "a parameter");
  const std::string bias = options_.bias.value_or("none");
  check<ConfigError>(bias == "none" || bias == "all" || bias == "lora_only", section_,
                     "expected bias none, all or lora_only, got ", quote(bias));
  for (const auto& item : module.named_parameters()) {
    const std::string& name = item.key();
    if (adapters.contains(item.value().unsafeGetTensorImpl())) {
      continue;
    }
    const auto dot = name.rfind('.');
    const std::string owner = dot == std::string::npos ? std::string() : name.substr(0, dot);
    const bool is_bias = name.substr(dot + 1) == "bias";
    const bool trains =
        saved.contains(name) || (is_bias && (bias == "all" || (bias == "lora_only" && adapted.contains(owner))));
    check<ConfigError>(!saved.contains(name) || is_bias || !adapted.contains(owner), where,
                       "expected parameters of layers without adapters, got ", quote(name));
    item.value().set_requires_grad(trains);
    if (trains) {
      trained_.emplace_back(name, item.value());
    } else {
      item.value().mutable_grad().reset();
    }
    if (saved.contains(name) && std::find(modules_.begin(), modules_.end(), owner) == modules_.end()) {
      modules_.push_back(owner);
    }
  }
}

LoraAdapters::Named LoraAdapters::named_parameters() const {
  Named out;
  for (const Layer& layer : layers_) {
    if (layer.weight != nullptr) {
      out.emplace_back(name_inside(layer.name, "lora_A.weight"), layer.a);
      out.emplace_back(name_inside(layer.name, "lora_B.weight"), layer.b);
    }
  }
  return out;
}

void LoraAdapters::to(at::Device device) const {
  for (auto [name, parameter] : named_parameters()) {
    parameter.set_data(parameter.to(device));
    if (parameter.grad().defined()) {
      parameter.mutable_grad() = parameter.grad().to(device);
    }
  }
  update();
}

void LoraAdapters::update() const {
  const c10::InferenceMode with_gradients(false);
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  for (const Layer& layer : layers_) {
    if (layer.weight != nullptr) {
      *layer.weight = MergedWeight::apply(layer.base, layer.a, layer.b, layer.scale);
    }
  }
}

void LoraAdapters::reset() const {
  for (const Layer& layer : layers_) {
    layer.b.detach().zero_();
  }
  update();
}

bool LoraAdapters::is_in(const State& weights) const {
  return std::any_of(layers_.begin(), layers_.end(), [&](const Layer& layer) {
    return weights.find(name_inside(layer.name, "lora_A.weight")) != nullptr;
  });
}

State LoraAdapters::merge(const State& weights) const {
  State out = State::Map();
  for (const auto& entry : weights.map()) {
    out[entry.key] = entry.value;
  }
  for (const Layer& layer : layers_) {
    const State* a = weights.find(name_inside(layer.name, "lora_A.weight"));
    const State* b = weights.find(name_inside(layer.name, "lora_B.weight"));
    const State* base = weights.find(name_inside(layer.name, "weight"));
    if (a != nullptr && b != nullptr) {
      out[name_inside(layer.name, "weight")] = merged(base != nullptr ? base->tensor().detach() : layer.base.detach(),
                                                      a->tensor().detach(), b->tensor().detach(), layer.scale);
      out.map().erase(name_inside(layer.name, "lora_A.weight"));
      out.map().erase(name_inside(layer.name, "lora_B.weight"));
    }
  }
  return out;
}

}  // namespace danling::inline v0::nn
