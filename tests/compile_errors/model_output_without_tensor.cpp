// expect: model_output(prediction) must return the tensor for metrics and criteria
#include <danling/runner/torch_runner.hpp>

namespace model_output_without_tensor {

struct Output {
  at::Tensor logits;
};
#ifdef WRONG
inline double model_output(const Output&) { return 0; }
#else
inline const at::Tensor& model_output(const Output& output) { return output.logits; }
#endif

class Runner : public danling::BasicTorchRunner<danling::Batch, Output> {
 public:
  explicit Runner(const danling::RunnerConfig& config) : BasicTorchRunner(config) {}
};

}  // namespace model_output_without_tensor
