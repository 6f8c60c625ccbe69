// Backward passes of a pipeline stage, whole or in two parts.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

namespace danling::inline v0::parallel::detail {

/// The graph of one micro-batch in one stage, from its outputs to its inputs. Holds no output, so that the memory of
/// outputs that the graph does not need is free.
class StageGraph {
 public:
  StageGraph() = default;
  /// @param inputs  leaves; those that require gradients get one
  StageGraph(const std::vector<at::Tensor>& outputs, std::vector<at::Tensor> inputs);

  /// Accumulates into `.grad` of the parameters, and returns a gradient per input, undefined if there is none.
  /// @param gradients  gradients of the outputs, undefined if none was computed
  std::vector<at::Tensor> backward(const std::vector<at::Tensor>& gradients);

  /// Computes only the gradients of the inputs. At an operator with an input from the stage's inputs and another from
  /// parameters, it computes the first and stores the incoming gradient, then cuts the edge to earlier operators.
  std::vector<at::Tensor> backward_input(const std::vector<at::Tensor>& gradients);
  /// Runs the rest, once, after `backward_input`: from the stored gradients to the parameters, in one run of the
  /// engine.
  void backward_weight();

 private:
  std::vector<torch::autograd::Edge> roots_;  ///< by output; without function if it requires no gradient
  std::vector<at::Tensor> inputs_;
  std::vector<torch::autograd::Edge> weight_roots_;
  std::vector<at::Tensor> weight_gradients_;
};

}  // namespace danling::inline v0::parallel::detail
