#include <runner/tools_config.hpp>

#include <algorithm>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr auto validate_where = "config.validate";

template <class Tool>
void check_switch(const std::string& name, const char* key, bool enabled, const Tool& tool,
                  const std::vector<std::string>& changed) {
  if (!enabled && std::find(changed.begin(), changed.end(), name) != changed.end()) {
    for (const Difference& difference : find_differences(to_tree(tool), to_tree(Tool()))) {
      fail<ConfigError>(validate_where, "expected '", key, "' with '", name, ".", difference.key, "', got none");
    }
  }
}

}  // namespace

void check_tools(const RunnerConfig& config, const std::vector<std::string>& changed) {
  check_switch("find_lr", "find_lr", config.find_lr.enabled, config.find_lr, changed);
  check_switch("find_batch_size", "find_batch_size", config.find_batch_size.enabled, config.find_batch_size, changed);
  check_switch("compile", "compile.enable", config.compile.enable, config.compile, changed);
  check_switch("profiling", "profiling.enabled", config.profiling.enabled, config.profiling, changed);
  const bool strict = std::find(changed.begin(), changed.end(), "pretrained_strict") == changed.end();
  check<ConfigError>(config.pretrained || config.pretrained_strict || strict, validate_where,
                     "expected 'pretrained' with 'pretrained_strict', got none");
}

void check_tools(const RunnerConfig& config) {
  check<ConfigError>(config.find_lr.min < config.find_lr.max, validate_where,
                     "expected 'find_lr.min' below 'find_lr.max', got ", config.find_lr.min, " and ",
                     config.find_lr.max);
  check<ConfigError>(config.find_batch_size.min <= config.find_batch_size.max, validate_where,
                     "expected 'find_batch_size.min' of at most 'find_batch_size.max', got ",
                     config.find_batch_size.min, " and ", config.find_batch_size.max);
  config.compile.check();
  config.profiling.check();
  for (const auto& [set, key] :
       {std::pair(config.profiling.enabled, "profiling.enabled"), std::pair(config.tensorboard, "tensorboard"),
        std::pair(config.csv, "csv"), std::pair(config.wandb.enabled, "wandb.enabled"),
        std::pair(config.mlflow.enabled, "mlflow.enabled")}) {
    check<ConfigError>(!set || config.record, validate_where, "expected 'record: true' with '", key,
                       "', got false, which writes nothing");
  }
}

}  // namespace danling::inline v0::detail
