// expect: a batch type needs `std::int64_t size() const`, or `std::int64_t batch_size(const B&)` in its namespace
#include <danling/runner/torch_runner.hpp>

namespace runner_of_another_batch {

struct Scene {
  at::Tensor input;
  Scene to(c10::Device device) const { return {input.to(device)}; }
#ifndef WRONG
  std::int64_t size() const { return input.size(0); }
#endif
};

class Runner : public danling::BasicTorchRunner<Scene> {
 public:
  explicit Runner(const danling::RunnerConfig& config) : BasicTorchRunner(config) {}
};

}  // namespace runner_of_another_batch
