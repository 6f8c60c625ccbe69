// expect: a prediction is a value; name its type without const and &: BasicTorchRunner<Batch, Output>
#include <danling/runner/torch_runner.hpp>

namespace prediction_by_reference {

struct Output {
  at::Tensor logits;
};

#ifdef WRONG
using Prediction = const Output&;
#else
using Prediction = Output;
#endif

class Runner : public danling::BasicTorchRunner<danling::Batch, Prediction> {
 public:
  explicit Runner(const danling::RunnerConfig& config) : BasicTorchRunner(config) {}
};

}  // namespace prediction_by_reference
