// expect: a prediction type must be movable, since steps return it
#include <danling/runner/torch_runner.hpp>

namespace prediction_that_cannot_move {

struct Output {
  at::Tensor logits;
#ifdef WRONG
  Output(const Output&) = delete;
#endif
};

class Runner : public danling::BasicTorchRunner<danling::Batch, Output> {
 public:
  explicit Runner(const danling::RunnerConfig& config) : BasicTorchRunner(config) {}
};

}  // namespace prediction_that_cannot_move
