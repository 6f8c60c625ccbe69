#include <runner/adapters.hpp>

#include <algorithm>
#include <set>
#include <system_error>

#include <danling/checkpoint/pretrained.hpp>
#include <danling/config/tree.hpp>
#include <danling/core/detail/suggest.hpp>
#include <danling/nn/lora.hpp>
#include <danling/optim/build.hpp>

#include <core/name_pattern.hpp>

namespace danling::inline v0 {

void TorchRunnerBase::Internals::Adapters::attach() {
  const LoraConfig& lora = runner_.config().lora;
  const bool common = !assigned_keys(static_cast<const nn::LoraOptions&>(lora)).empty();
  if (common && runner_.model) {
    runner_.model.add_lora(lora);
  }
  check<ConfigError>(!common || runner_.model || !lora.models.empty(), "runner.materialize_model",
                     "expected a section of lora for one of several models, such as lora.<model>.r, got none");
  std::vector<std::string> known;
  for (const auto& item : runner_.models) {
    known.push_back(item.first);
  }
  for (const auto& [name, own] : lora.models) {
    const auto found = runner_.models.find(name);
    check<ConfigError>(found != runner_.models.end(), "runner.materialize_model",
                       "expected sections of lora for the models (",
                       known.empty() ? "this runner has one, without a name" : join(known), "), got ",
                       quote(concat("lora.", name)), did_you_mean(name, known));
    found->second.add_lora(lora.for_name(name), concat("lora.", name));
  }
  runner_.has_adapters_ =
      runner_.model.lora() != nullptr || std::any_of(runner_.models.begin(), runner_.models.end(),
                                                     [](const auto& item) { return item.second.lora() != nullptr; });
  check<ConfigError>(!runner_.has_adapters_ || !runner_.ema, "runner.materialize_model",
                     "expected ema.enabled for the average of a model with adapters, got an `ema` of the program");
}

void TorchRunnerBase::Internals::Adapters::update(const std::string& name) {
  const ModelHandle& handle = name.empty() ? runner_.model : runner_.models.at(name);
  if (handle.lora() != nullptr) {
    handle.lora()->update();
  }
}

void TorchRunnerBase::Internals::Adapters::update() {
  update("");
  for (const auto& [name, handle] : runner_.models) {
    update(name);
  }
}

void TorchRunnerBase::Internals::Adapters::freeze() {
  const OptimConfig& optim = runner_.config().optim;
  const NamedTensors saved = modules_to_save();
  NamedTensors common = runner_.model.named_parameters();
  for (const auto& [name, handle] : runner_.models) {
    const auto own = optim.models.find(name);
    const NamedTensors parameters = handle.named_parameters();
    if (own != optim.models.end() && own->second.freeze) {
      danling::optim::freeze(*own->second.freeze, parameters, concat("optim.", name, ".freeze"));
    } else {
      common.insert(common.end(), parameters.begin(), parameters.end());
    }
  }
  if (optim.freeze) {
    danling::optim::freeze(*optim.freeze, common);
  }
  for (const auto& [name, parameter] : saved) {
    check<ConfigError>(parameter.requires_grad(), "runner.materialize_model", "expected ", quote(name),
                       " in lora.modules_to_save or in optim.freeze, got both");
  }
}

NamedTensors TorchRunnerBase::Internals::Adapters::modules_to_save() const {
  NamedTensors out;
  const auto add = [&out](const ModelHandle& model, const nn::LoraOptions& options) {
    if (model.lora() == nullptr) {
      return;
    }
    for (const auto& text : options.modules_to_save.value_or(std::vector<std::string>())) {
      const detail::NamePattern pattern(text, "runner.materialize_model");
      for (const auto& item : model.named_parameters()) {
        if (pattern.is_in(item.first)) {
          out.push_back(item);
        }
      }
    }
  };
  add(runner_.model, runner_.config().lora);
  for (const auto& [name, model] : runner_.models) {
    add(model, runner_.config().lora.for_name(name));
  }
  return out;
}

std::shared_ptr<optim::Optimizer> TorchRunnerBase::Internals::Adapters::build_optimizer(
    optim::OptimizerSpec spec, const ModelHandle& model, NamedTensors parameters, std::vector<std::string>& warnings) {
  if (spec.freeze || model.lora() != nullptr) {
    const bool some = !parameters.empty();
    std::erase_if(parameters, [](const auto& item) { return !item.second.requires_grad(); });
    check<ConfigError>(!parameters.empty() || !some, "runner.build_optimizer",
                       "expected parameters to train, got none that ", spec.section, ".freeze leaves");
    spec.freeze.reset();  // a common pattern may match only parameters of other models
  }
  return optim::build_optimizer(spec, parameters, &warnings);
}

void TorchRunnerBase::Internals::Adapters::check_optimizers() const {
  const auto check_one = [](const ModelHandle& model, const std::shared_ptr<optim::Optimizer>& optimizer,
                            const std::string& member, const std::string& section) {
    if (model.lora() == nullptr || optimizer == nullptr) {
      return;
    }
    std::set<const c10::TensorImpl*> held;
    for (const auto& group : optimizer->param_groups()) {
      for (const at::Tensor& parameter : group.params) {
        held.insert(parameter.unsafeGetTensorImpl());
      }
    }
    for (const auto& [name, parameter] : model.lora()->named_parameters()) {
      check<ConfigError>(!parameter.requires_grad() || held.contains(parameter.unsafeGetTensorImpl()),
                         "runner.build_optimizer", "expected the adapter ", quote(name), " among the parameters of ",
                         member,
                         ", got an optimizer that the program built before the adapters; leave it unset and set ",
                         section, ".type, or build it in build_optimizer()");
    }
  };
  check_one(runner_.model, runner_.optimizer, "`optimizer`", "optim");
  for (const auto& [name, model] : runner_.models) {
    const auto bound = runner_.optimizers.find(name);
    check_one(model, bound == runner_.optimizers.end() ? nullptr : bound->second, concat("optimizers[\"", name, "\"]"),
              concat("optim.", name));
  }
}

// ---- exports --------------------------------------------------------------------------------------------------------

State TorchRunnerBase::exported_state_dict(const State& weights) const {
  if (!has_adapters_) {
    return weights;
  }
  State out = weights;
  for (const auto* key : {"model", "ema", "swa"}) {
    if (const State* found = weights.find(key); found != nullptr && found->is_map() && model.lora() != nullptr) {
      out[key] = model.lora()->merge(*found);
    }
  }
  if (const State* named = weights.find("models")) {
    for (const auto& [name, parts] : named->map()) {
      const auto& adapters = models.at(name.string()).lora();
      for (const auto& [key, value] : parts.map()) {
        if (adapters != nullptr && value.is_map()) {
          out["models"][name.string()][key.string()] = adapters->merge(value);
        }
      }
    }
  }
  return out;
}

namespace {

bool shares_tensors(const State& a, const State& b) {
  return std::all_of(a.map().begin(), a.map().end(), [&](const auto& entry) {
    const State* other = b.find(entry.key);
    return other != nullptr && other->is_tensor() && other->tensor().is_alias_of(entry.value.tensor());
  });
}

}  // namespace

void TorchRunnerBase::export_files(const State& weights, const std::filesystem::path& directory) {
  const auto export_one = [&](const ModelHandle& handle, const State& values, const std::string& suffix) {
    if (handle.lora() != nullptr) {
      handle.lora()->save(directory / concat("adapter", suffix), values);
    }
    if (!handle.is_script() || !config().checkpoint.export_script) {
      return;
    }
    std::error_code exists;
    std::filesystem::create_directories(directory, exists);
    const State own = handle.state_dict();
    const State kept = shares_tensors(own, values) ? State() : clone(own);
    handle.train(false);
    handle.load_state_dict(values);
    try {
      handle.save_script(directory / concat("model", suffix, ".pt"));
    } catch (...) {
      copy_weights(own, kept.is_null() ? own : kept);
      throw;
    }
    copy_weights(own, kept.is_null() ? own : kept);
  };
  // One file has one set of weights: the average that evaluation uses, if there is one.
  const auto chosen = [](const State& part) {
    State out = State::Map();
    const State* average = part.find("ema");
    for (const auto& entry : part.at("model").map()) {
      const State* averaged = average != nullptr && average->is_map() ? average->find(entry.key) : nullptr;
      out[entry.key] = averaged != nullptr ? *averaged : entry.value;
    }
    return out;
  };
  if (model) {
    export_one(model, chosen(weights), "");
  }
  for (const auto& [name, handle] : models) {
    export_one(handle, chosen(weights.at("models").at(name)), concat("-", name));
  }
}

}  // namespace danling::inline v0
