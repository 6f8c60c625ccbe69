// Construction and copies of RunnerConfig: each program would spend half a second on compiling them.
#include <danling/runner/runner_config.hpp>

namespace danling::inline v0 {

RunnerConfig::RunnerConfig() = default;
RunnerConfig::RunnerConfig(const RunnerConfig& other) = default;
RunnerConfig& RunnerConfig::operator=(const RunnerConfig& other) = default;
RunnerConfig::~RunnerConfig() = default;

}  // namespace danling::inline v0
