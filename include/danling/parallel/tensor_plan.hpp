// A plan that slices the layers of a model: danling's, and LibTorch's, which stay as they are.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

namespace torch::nn {
class Module;
}

namespace danling::inline v0 {
class ParallelContext;
}

namespace danling::inline v0::parallel {

/// How a module is sliced, by the names of PyTorch.
///
/// - `colwise`: a Linear by its outputs; an Embedding by its dimension
/// - `rowwise`: a Linear by its inputs; an Embedding by its rows, the vocabulary
/// - `sequence`: norms, and other modules that work on a part of each sequence: parameters stay whole, their gradients
///   are summed
enum class TensorStyle { colwise, rowwise, sequence };
constexpr auto names_of(TensorStyle) { return std::to_array<std::string_view>({"colwise", "rowwise", "sequence"}); }

/// The options are those of ColumnParallelLinear, RowParallelLinear and VocabParallelEmbedding.
struct TensorParallelRule {
  std::string pattern;  ///< a regular expression that is searched in names of modules: "layers\\.\\d+\\.q_proj$"
  TensorStyle style = TensorStyle::colwise;
  bool gather_output = false;      ///< of colwise; the bias then stays whole
  bool input_is_parallel = true;   ///< of rowwise linear
  bool sequence_parallel = false;  ///< of colwise: the input is a part of the sequences; of rowwise: the output
  std::int64_t sequence_dim = 1;   ///< with sequence_parallel
  std::int64_t unit = 1;           ///< values that stay together; not of an embedding's rows
};
/// The first rule that matches a module applies.
using TensorParallelPlan = std::vector<TensorParallelRule>;

/// Slices the modules below `module` over an axis: danling's parallel layers, and other Parallelizable modules, by
/// their parallelize(), and LibTorch's Linear and Embedding layers by the plan. Values are those of rank 0 of the axis,
/// which sends its parameters and buffers first. Called by all ranks, once, before an optimizer or a ShardedModel is
/// made.
///
/// LibTorch's layers are neither wrapped nor replaced: an operator that gets a sliced weight communicates as the layer
/// of danling would, wherever it is called: the layer's forward, F::linear, or `matmul(x, embedding->weight.t())`,
/// which returns logits of this rank's classes. A graph that uses the weight in another way would miss what other ranks
/// add: such an operator throws. Without gradient recording, operators see the slice as a plain tensor: optimizers,
/// norms, files. Module::to() and clone() keep the style; set_data() with another tensor loses it: copy values in
/// place.
///
/// The plan is checked on one process too, where nothing is sliced.
/// @throws ConfigError for an invalid pattern, one that is found in no name, a style or option that does not fit the
///         module, and sizes that are no whole units
void parallelize_module(torch::nn::Module& module, const ParallelContext& context, const TensorParallelPlan& plan = {},
                        std::string_view axis = "tensor");

/// The rules alone, over `tensor`, of a model that has called its own parallelize() and has the values of rank 0.
/// @throws ConfigError as parallelize_module()
void follow_plan(torch::nn::Module& module, const ParallelContext& context, const TensorParallelPlan& plan);

/// Sums the gradients of a module's parameters over ranks, in the backward pass: for norms, and all else that is whole
/// and works on a part of each sequence. What `sequence` does in a plan. A sliced parameter is refused.
void sum_gradients(const torch::nn::Module& module, const Group& group);

}  // namespace danling::inline v0::parallel
