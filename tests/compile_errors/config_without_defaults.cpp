// expect: danling: a config can be copied, and made without arguments
#include <danling/runner/torch_runner.hpp>

namespace config_without_defaults {

struct Config : danling::RunnerConfig {
#ifdef WRONG
  explicit Config(bool is_fast) { epochs = is_fast ? 1 : 10; }
#else
  explicit Config(bool is_fast = false) { epochs = is_fast ? 1 : 10; }
#endif
};

struct Runner : danling::TorchRunner {
  explicit Runner(const Config& config) : TorchRunner(config) {}
};

}  // namespace config_without_defaults
