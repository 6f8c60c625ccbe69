#include "runner/stage_names.hpp"

#include <algorithm>

#include <torch/nn/module.h>

#include <danling/core/error.hpp>
#include <danling/parallel/pipeline_split.hpp>

namespace danling::inline v0::detail {

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
  static constexpr std::string_view operation = "runner.build_pipeline_model_part";
  std::vector<std::vector<std::string>> names;
  for (const std::string& stage : stages) {
    names.push_back(names_in(stage));
    check<ConfigError>(!names.back().empty(), operation,
                       "expected names of modules in each entry of 'parallel.module_fqns_per_model_part', got none for "
                       "stage ",
                       names.size() - 1);
  }
  if (dynamic_cast<const parallel::PipelineModel*>(whole.module().get()) != nullptr) {
    return;
  }
  parallel::split_by_names(whole.module(), names);
  const auto left = parallel::parameters_without_stage(*whole.module(), names);
  check<ConfigError>(left.empty(), operation,
                     "expected each parameter in a stage of 'parallel.module_fqns_per_model_part', got none for ",
                     left.empty() ? "" : left.front(), left.size() > 1 ? concat(" and ", left.size() - 1, " more") : "",
                     "; name the module, or let the model be a danling::parallel::PipelineModel");
}

}  // namespace danling::inline v0::detail
