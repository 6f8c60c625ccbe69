// expect: `model` must be a module holder, a shared_ptr to a torch::nn module, a TorchScript module or a callable
#include <danling/runner/torch_runner.hpp>

namespace model_without_result {

struct Input {
  at::Tensor left, right;
};

danling::ModelHandle make() {
#ifdef WRONG
  return [](const Input&) {};
#else
  return [](const Input& input) { return std::pair(input.left, input.right); };
#endif
}

}  // namespace model_without_result
