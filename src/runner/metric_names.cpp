// Names of metrics that would replace a number of the runner, or a key of a log line.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <danling/runner/torch_runner_base.hpp>

#include <runner/checks.hpp>
#include <runner/learners.hpp>
#include <telemetry/log_keys.hpp>

namespace danling::inline v0 {

void TorchRunnerBase::Internals::Checks::metric_names(std::string_view operation) const {
  std::vector<std::string> reserved = {"loss", "lr"};
  reserved.insert(reserved.end(), detail::log_keys.begin(), detail::log_keys.end());
  if (runner_.criterion.losses() != nullptr) {
    reserved.emplace_back("losses");
  }
  for (const Learner& learner : runner_.learners_) {
    const std::string suffix = learner.name.empty() ? "" : concat("_", learner.name);
    if (!suffix.empty()) {
      reserved.push_back(concat("lr", suffix));
    }
    if (learner.stats != nullptr) {
      reserved.insert(reserved.end(), {concat("grad_norm", suffix), concat("noise_scale", suffix)});
    }
  }
  for (const auto& [field, handle] : {std::pair<const char*, const MetricsHandle&>("metrics", runner_.metrics),
                                      {"train_metrics", runner_.train_metrics},
                                      {"evaluate_metrics", runner_.evaluate_metrics}}) {
    if (handle == nullptr) {
      continue;
    }
    for (const auto& entry : handle->n()) {
      if (std::find(reserved.begin(), reserved.end(), entry.name) != reserved.end()) {
        fail<ConfigError>(operation, "expected metrics without a name of the runner (", join(reserved), "), got ",
                          quote(entry.name), " in `", field, "`; rename it");
      }
    }
  }
}

}  // namespace danling::inline v0
