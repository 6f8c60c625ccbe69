// Splits a model by module names.
#include <danling/parallel/pipeline_split.hpp>

#include <algorithm>
#include <set>
#include <unordered_map>

#include <torch/nn/module.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::parallel {
namespace {

using ModulePtr = std::shared_ptr<torch::nn::Module>;

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (const auto& name : names) {
    out += concat(out.empty() ? "" : ", ", "\"", name, "\"");
  }
  return out;
}

std::string name_in_part(const std::string& name) {
  std::string out = name;
  std::replace(out.begin(), out.end(), '.', '_');
  return out;
}

/// Adds the parameters and buffers of a module; names begin with `of_part` in the part and with `of_model` in the
/// model.
void add_names(std::map<std::string, std::string>& names, const torch::nn::Module& module, const std::string& of_part,
               const std::string& of_model) {
  for (const auto& item : module.named_parameters()) {
    names.emplace(of_part + item.key(), of_model + item.key());
  }
  for (const auto& item : module.named_buffers()) {
    names.emplace(of_part + item.key(), of_model + item.key());
  }
}

/// Runs modules in sequence.
class PartInSequence : public torch::nn::Module {
 public:
  void add(const std::string& name, const ModulePtr& module) { register_module(name, module); }
};

/// Returns the part of one list of split_by_names(). (DanLing: `_build_pipeline_model_part_from_fqns`)
PipelinePart part_by_names(const ModulePtr& model, const std::vector<std::string>& names) {
  constexpr const char* where = "pipeline.split";
  check<ConfigError>(!names.empty(), where, "expected names of modules for each stage, got a stage without");
  std::unordered_map<std::string, ModulePtr> modules;
  for (const auto& item : model->named_modules()) {
    modules.emplace(item.key(), item.value());
  }
  std::vector<std::string> unknown;
  std::vector<std::string> repeated;
  std::set<std::string> seen;
  for (const auto& name : names) {
    check<ConfigError>(!name.empty(), where, "expected names of modules in the model, got \"\", which is the model");
    if (!modules.contains(name)) {
      unknown.push_back(name);
    }
    if (!seen.insert(name).second) {
      repeated.push_back(name);
    }
  }
  if (!unknown.empty()) {
    std::vector<std::string> children;
    for (const auto& item : model->named_children()) {
      children.push_back(item.key());
    }
    fail<ConfigError>(where, "expected names of modules in the model, got ", list_of(unknown),
                      "; the model's children: ", list_of(children));
  }
  check<ConfigError>(repeated.empty(), where, "expected each module once in a stage, got repeated ", list_of(repeated));

  PipelinePart part;
  if (names.size() == 1) {
    part.module = modules.at(names.front());
    part.forward = stage_forward(part.module);
    add_names(part.full_names, *part.module, "", names.front() + ".");
    return part;
  }
  const auto sequence = std::make_shared<PartInSequence>();
  std::vector<PipelineStage::Forward> calls;
  for (const auto& name : names) {
    const ModulePtr& module = modules.at(name);
    std::string own = name_in_part(name);
    while (sequence->named_children().contains(own)) {  // collision of "a.b" and "a_b"
      own += '_';
    }
    sequence->add(own, module);
    calls.push_back(stage_forward(module));
    add_names(part.full_names, *module, own + ".", name + ".");
  }
  part.module = sequence;
  part.forward = [calls = std::move(calls)](const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> values = inputs;
    for (const auto& call : calls) {
      values = call(values);
    }
    return values;
  };
  return part;
}

}  // namespace

std::vector<PipelinePart> split_by_names(const ModulePtr& model,
                                         const std::vector<std::vector<std::string>>& names_of_stages) {
  std::vector<PipelinePart> out;
  std::unordered_map<const void*, std::size_t> stage_of;
  for (std::size_t stage = 0; stage < names_of_stages.size(); ++stage) {
    check<ConfigError>(!names_of_stages[stage].empty(), "pipeline.split",
                       "expected names of modules for each stage, got none for stage ", stage);
    out.push_back(part_by_names(model, names_of_stages[stage]));
    for (const auto& item : out.back().module->named_parameters()) {
      const auto [found, first] = stage_of.emplace(item.value().unsafeGetTensorImpl(), stage);
      check<ConfigError>(first || found->second == stage, "pipeline.split",
                         "expected each parameter in one stage, got ", out.back().full_names.at(item.key()),
                         " in the stages ", found->second, " and ", stage,
                         "; gradients of its uses would not be added");
    }
  }
  return out;
}

PipelinePart build_part(const ModulePtr& model, std::int64_t stage_index, std::int64_t num_stages,
                        const std::vector<std::string>& names, const ParallelContext& parallel) {
  auto* const builder = dynamic_cast<PipelineModel*>(model.get());
  if (builder == nullptr && !names.empty()) {
    return part_by_names(model, names);
  }
  PipelinePart part;
  part.module =
      builder != nullptr ? builder->build_pipeline_model_part(stage_index, num_stages, names, parallel) : nullptr;
  if (!part.module) {
    part.module = model;
  }
  part.forward = stage_forward(part.module);
  // Modules of the model keep their names in a part that the model builds; new modules have the names of the part.
  std::unordered_map<const void*, std::string> of_model;
  for (const auto& item : model->named_parameters()) {
    of_model.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  for (const auto& item : model->named_buffers()) {
    of_model.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  const auto add = [&](const auto& items) {
    for (const auto& item : items) {
      const auto known = of_model.find(item.value().unsafeGetTensorImpl());
      part.full_names.emplace(item.key(), known == of_model.end() ? item.key() : known->second);
    }
  };
  add(part.module->named_parameters());
  add(part.module->named_buffers());
  return part;
}

std::vector<std::string> parameters_without_stage(const torch::nn::Module& model,
                                                  const std::vector<std::vector<std::string>>& names_of_stages) {
  std::vector<std::string> out;
  for (const auto& item : model.named_parameters()) {
    const bool covered = std::any_of(names_of_stages.begin(), names_of_stages.end(), [&](const auto& names) {
      return std::any_of(names.begin(), names.end(),
                         [&](const std::string& name) { return item.key().starts_with(name + "."); });
    });
    if (!covered) {
      out.push_back(item.key());
    }
  }
  return out;
}

}  // namespace danling::inline v0::parallel
