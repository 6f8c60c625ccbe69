#include <danling/runner/torch_runner.hpp>

namespace danling::inline v0 {

TorchRunner::~TorchRunner() = default;

}  // namespace danling::inline v0
