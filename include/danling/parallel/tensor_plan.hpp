// A plan that slices the layers of a model: danling's layers, and LibTorch's without replacing them.
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

/// The way in which a module is sliced, named as in PyTorch.
///
/// - `colwise`: a Linear by its outputs; an Embedding by its dimension
/// - `rowwise`: a Linear by its inputs; an Embedding by its rows, the vocabulary
/// - `sequence`: norms, and other modules that work on a part of each sequence: parameters stay whole, their gradients
///   are summed
enum class TensorStyle { colwise, rowwise, sequence };
constexpr auto names_of(TensorStyle) { return std::to_array<std::string_view>({"colwise", "rowwise", "sequence"}); }

/// The options are those of ColumnParallelLinear, RowParallelLinear and VocabParallelEmbedding.
struct TensorParallelRule {
  std::string pattern;  ///< a regular expression, searched for in module names: "layers\\.\\d+\\.q_proj$"
  TensorStyle style = TensorStyle::colwise;
  bool gather_output = false;      ///< colwise only; the bias then stays whole
  bool input_is_parallel = true;   ///< rowwise Linear only
  bool sequence_parallel = false;  ///< colwise: the input is a part of the sequences; rowwise: the output
  std::int64_t sequence_dim = 1;   ///< with sequence_parallel
  std::int64_t unit = 1;           ///< values that stay together; not for an embedding's rows
};
/// The first rule that matches a module applies.
using TensorParallelPlan = std::vector<TensorParallelRule>;

/// Slices the modules below `module` over an axis: danling's parallel layers and other Parallelizable modules by their
/// parallelize(), LibTorch's Linear and Embedding layers by the plan. Values are those of rank 0 of the axis, which
/// first sends its parameters and buffers. Every rank must call it once, before an optimizer or a ShardedModel is
/// created.
///
/// LibTorch's layers are neither wrapped nor replaced: an operator with a sliced weight communicates as danling's layer
/// would, wherever it is called: in the layer's forward, F::linear, or `matmul(x, embedding->weight.t())`, which
/// returns the logits of this rank's classes. An operator that uses the weight in another way throws, since its result
/// would lack the contribution of other ranks. Without gradient recording, operators see the slice as a plain tensor:
/// optimizers, norms, files. Module::to() and clone() keep the style; set_data() with another tensor loses it: copy
/// values in place.
///
/// The plan is also checked on one process, where nothing is sliced.
/// @throws ConfigError for an invalid pattern, a pattern without a match, a style or option that the module does not
///         support, and sizes that are not multiples of `unit`
void parallelize_module(torch::nn::Module& module, const ParallelContext& context, const TensorParallelPlan& plan = {},
                        std::string_view axis = "tensor");

/// Applies only the rules, over `tensor`, to a model that has called its parallelize() and has the values of rank 0.
/// @throws ConfigError as parallelize_module()
void apply_plan(torch::nn::Module& module, const ParallelContext& context, const TensorParallelPlan& plan);

/// Sums the gradients of a module's parameters over ranks, in the backward pass: for norms and other whole modules that
/// work on a part of each sequence, as `sequence` does in a plan. @throws StateError for a sliced or sharded parameter.
void sum_gradients(const torch::nn::Module& module, const Group& group);

}  // namespace danling::inline v0::parallel
