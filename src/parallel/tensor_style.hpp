// Operators on a parameter that is a slice of a LibTorch layer: tensor parallel without replacing layers.
#pragma once

#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <danling/distributed/group.hpp>

#include <parallel/sharded_tensor.hpp>
#include <parallel/tensor_layers.hpp>

namespace danling::inline v0::detail {

/// The uses that the plan allows; a tied parameter has two.
struct ParameterStyle {
  Group group;
  std::optional<ColumnLinear> column;
  std::optional<RowLinear> row;
  std::optional<VocabEmbedding> vocab;
  std::optional<ColumnLinear> embedding_columns;
  /// The parameter is whole and used on a part of the sequences: its gradients are addends.
  bool sums_gradients = false;

  bool is_sliced() const { return column || row || vocab || embedding_columns; }
};

/// Operators that multiply by a parameter, or look up its rows.
enum class StyledOperator { none, linear, matmul, addmm, embedding, unknown_product };
StyledOperator styled_operator(const c10::OperatorName& name);

/// Computes an operator whose parameter has a style, instead of the operator: pops its arguments from the stack and
/// pushes the result. Returns false if no argument is a slice.
/// @throws StateError for a use that the style does not have
bool call_styled(StyledOperator kind, const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// The values for any other operator; with `sums_gradients`, their gradients are summed over ranks.
/// @param keeps  whether the result has the style too
at::Tensor values_of(const at::Tensor& tensor, const ShardMeta& meta, bool keeps);
/// The form in which the operator returns the parameter: not at all, in its shape, transposed, or detached. Except for
/// `no`, the result keeps the style.
enum class KeepsStyle { no, same, transposed, detached };
bool may_keep_style(const c10::OperatorName& name);
/// Of an operator that may.
KeepsStyle keeps_style(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
bool sums_gradients(const ShardMeta& meta);
/// @throws StateError if a graph would lack the contribution of other ranks
void check_unstyled_use(const c10::OperatorHandle& op, const ShardMeta& meta, const at::Tensor& tensor);

}  // namespace danling::inline v0::detail
