#include "runner/tools_config.hpp"

#include <algorithm>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr auto where = "config.validate";

template <class Tool>
void check_switch(const std::string& name, const Tool& tool, const std::vector<std::string>& changed) {
  if (!tool.enabled && std::find(changed.begin(), changed.end(), name) != changed.end()) {
    for (const Difference& difference : differences(to_tree(tool), to_tree(Tool()))) {
      fail<ConfigError>(where, "expected '", name, "' beside '", name, ".", difference.key, "', got none");
    }
  }
}

}  // namespace

void check_tools(const RunnerConfig& config, const std::vector<std::string>& changed) {
  check_switch("find_lr", config.find_lr, changed);
  check_switch("find_batch_size", config.find_batch_size, changed);
  const bool strict = std::find(changed.begin(), changed.end(), "pretrained_strict") == changed.end();
  check<ConfigError>(config.pretrained || config.pretrained_strict || strict, where,
                     "expected 'pretrained' beside 'pretrained_strict', got none");
}

}  // namespace danling::inline v0::detail
