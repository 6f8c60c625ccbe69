// Backward passes of a pipeline stage, whole or in two parts.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

namespace danling::inline v0::parallel::detail {

/// The graph of one micro-batch in one stage, from its outputs to its inputs. Keeps no output, so that their memory is
/// free where the graph does not need it.
class StageGraph {
 public:
  StageGraph() = default;
  /// @param inputs  leaves, of which those that require gradients get one
  StageGraph(const std::vector<at::Tensor>& outputs, std::vector<at::Tensor> inputs);

  /// Accumulates into `.grad` of the parameters, and returns a gradient for each input, undefined where there is none.
  /// @param gradients  of the outputs, undefined for those that none was computed for
  std::vector<at::Tensor> backward(const std::vector<at::Tensor>& gradients);

  /// The gradients of the inputs alone. An operator with an input from the stage's inputs and another from parameters
  /// computes the first; the gradient that reached it is kept. Then it is cut from the operators before it.
  std::vector<at::Tensor> backward_input(const std::vector<at::Tensor>& gradients);
  /// The rest, once, after `backward_input`: from the kept gradients to the parameters, in one run of the engine.
  void backward_weight();

 private:
  std::vector<torch::autograd::Edge> roots_;  ///< by output; without function where it requires no gradient
  std::vector<at::Tensor> inputs_;
  std::vector<torch::autograd::Edge> weight_roots_;
  std::vector<at::Tensor> weight_gradients_;
};

}  // namespace danling::inline v0::parallel::detail
