// Operators on a parameter that is a slice of LibTorch's layer: tensor parallel without layers of its own.
#pragma once

#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <danling/distributed/group.hpp>

#include "parallel/sharded_tensor.hpp"
#include "parallel/tensor_layers.hpp"

namespace danling::inline v0::detail {

/// Set are the uses that the plan gave it; a tied parameter has two.
struct ParameterStyle {
  Group group;
  std::optional<ColumnLinear> column;
  std::optional<RowLinear> row;
  std::optional<VocabEmbedding> vocab;
  std::optional<ColumnLinear> embedding_columns;
  /// Used on a part of the sequences: whole, but its gradients are addends.
  bool sums_gradients = false;

  bool is_sliced() const { return column || row || vocab || embedding_columns; }
};

/// Operators that multiply by a parameter, or look up its rows.
enum class StyledOperator { none, linear, matmul, addmm, embedding, unknown_product };
StyledOperator styled_operator(const c10::OperatorName& name);

/// Computes an operator whose parameter has a style, in place of the operator: takes its arguments from the stack, and
/// leaves the result there. False where no argument is a slice.
/// @throws StateError for a use that the style does not have
bool call_styled(StyledOperator kind, const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// The values for an operator that is not one of those; with `sums_gradients` their gradients are summed over ranks.
/// @param keeps  whether the result has the style in its turn
at::Tensor values_of(const at::Tensor& tensor, const ShardMeta& meta, bool keeps);
/// Whether the operator returns the parameter's values in its shape, or transposed: results keep the style.
enum class KeepsStyle { no, same, transposed, detached };
bool may_keep_style(const c10::OperatorName& name);
/// Of an operator that may.
KeepsStyle keeps_style(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
bool sums_gradients(const ShardMeta& meta);
/// @throws StateError where a graph would miss what other ranks add
void check_unstyled_use(const c10::OperatorHandle& op, const ShardMeta& meta, const at::Tensor& tensor);

}  // namespace danling::inline v0::detail
