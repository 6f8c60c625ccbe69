// Operators that defer their results until they are read: attention, from the product of queries and keys on.
#pragma once

#include <functional>
#include <optional>

#include <tensors/nested/blocks.hpp>
#include <tensors/nested/call.hpp>

namespace danling::inline v0::detail {

/// Defers the product of queries (rows, size) and transposed keys; returns nullopt unless it can be attention scores.
/// `multiply` computes its values, of these sizes.
using MultiplyScores = std::function<at::Tensor(const at::Tensor& queries, const at::Tensor& keys)>;
std::optional<at::Tensor> defer_scores(const at::Tensor& queries, const Layout& query_layout, const at::Tensor& keys,
                                       const Layout& key_layout, const Structure& structure, c10::IntArrayRef sizes,
                                       const MultiplyScores& multiply);

/// Completes the call without values if its first argument is deferred and the operator needs no values: softmax and
/// dropout of scores, their product with values (by a fused kernel), the mean over heads.
/// @return false if the operator must be called normally
bool call_on_deferred(Call& call);

}  // namespace danling::inline v0::detail
