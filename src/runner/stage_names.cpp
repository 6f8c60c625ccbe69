#include <runner/stage_names.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <typeinfo>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include <danling/core/error.hpp>
#include <danling/parallel/pipeline_split.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::string_view stage_names_operation = "runner.build_pipeline_model_part";

bool is_sequential(const torch::nn::Module& module) { return typeid(module) == typeid(torch::nn::SequentialImpl); }

/// Appends a module's name, or the names of the modules that a Sequential runs.
void append_calls(const torch::nn::Module& module, const std::string& name, std::vector<std::string>& out) {
  if (!is_sequential(module)) {
    out.push_back(name);
    return;
  }
  for (const auto& child : module.named_children()) {
    append_calls(*child.value(), name.empty() ? child.key() : concat(name, ".", child.key()), out);
  }
}

/// A stage runs only the modules that it names: an activation that no stage names would be silently skipped.
void check_sequentials(const torch::nn::Module& model, const std::vector<std::vector<std::string>>& stages) {
  std::map<std::string, std::shared_ptr<torch::nn::Module>> modules;
  for (const auto& entry : model.named_modules("", /*include_self=*/false)) {
    modules.emplace(entry.key(), entry.value());
  }
  std::vector<std::string> calls;
  for (const auto& stage : stages) {
    for (const std::string& name : stage) {
      append_calls(*modules.at(name), name, calls);
    }
  }
  const auto check_one = [&](const torch::nn::Module& module, const std::string& name) {
    if (!is_sequential(module)) {
      return;
    }
    std::vector<std::string> expected, got;
    append_calls(module, name, expected);
    std::copy_if(calls.begin(), calls.end(), std::back_inserter(got),
                 [&](const std::string& call) { return name.empty() || call.starts_with(name + "."); });
    const auto [next, other] = std::mismatch(expected.begin(), expected.end(), got.begin(), got.end());
    check<ConfigError>(got.empty() || (next == expected.end() && other == got.end()), stage_names_operation,
                       "expected the modules of ", name.empty() ? std::string("the model") : quote(name),
                       ", a Sequential, in its order in 'parallel.module_fqns_per_model_part', got ",
                       other == got.end() ? "none" : quote(*other), " where ",
                       next == expected.end() ? std::string("it has no more") : concat(quote(*next), " is next"),
                       "; a stage runs what it names and nothing else");
  };
  check_one(model, "");
  for (const auto& [name, module] : modules) {
    check_one(*module, name);
  }
}

}  // namespace

std::vector<std::string> names_in(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    std::string_view name = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const auto first = name.find_first_not_of(' ');
    if (first != std::string_view::npos) {
      out.emplace_back(name.substr(first, name.find_last_not_of(' ') + 1 - first));
    }
  }
  return out;
}

void check_stage_names(const ModelHandle& whole, const std::vector<std::string>& stages) {
  std::vector<std::vector<std::string>> names;
  for (const std::string& stage : stages) {
    names.push_back(names_in(stage));
    check<ConfigError>(!names.back().empty(), stage_names_operation,
                       "expected names of modules in each entry of 'parallel.module_fqns_per_model_part', got none for "
                       "stage ",
                       names.size() - 1);
  }
  if (dynamic_cast<const parallel::PipelineModel*>(whole.module().get()) != nullptr) {
    return;
  }
  parallel::split_by_names(whole.module(), names);
  const auto left = parallel::parameters_without_stage(*whole.module(), names);
  check<ConfigError>(left.empty(), stage_names_operation,
                     "expected each parameter in a stage of 'parallel.module_fqns_per_model_part', got none for ",
                     left.empty() ? "" : left.front(), left.size() > 1 ? concat(" and ", left.size() - 1, " more") : "",
                     "; name the module, or let the model be a danling::parallel::PipelineModel");
  check_sequentials(*whole.module(), names);
}

}  // namespace danling::inline v0::detail
