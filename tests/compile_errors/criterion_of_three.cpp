// expect: prediction and target may be of other types, and the target may be the batch
#include <danling/runner/torch_runner.hpp>

namespace criterion_of_three {

struct Output {
  at::Tensor logits;
};

danling::CriterionHandle make() {
#ifdef WRONG
  return [](const Output& output, const at::Tensor&, double) { return output.logits; };
#else
  return [](const Output& output, const at::Tensor&) { return output.logits; };
#endif
}

}  // namespace criterion_of_three
