#include <danling/runner/torch_runner.hpp>

namespace danling::inline v0 {

template class BasicTorchRunner<Batch>;

TorchRunner::~TorchRunner() = default;

}  // namespace danling::inline v0
