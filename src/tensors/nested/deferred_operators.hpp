// Operators whose results are computed when they are read: attention from the product of queries and keys on.
#pragma once

#include <functional>
#include <optional>

#include "tensors/nested/blocks.hpp"
#include "tensors/nested/call.hpp"

namespace danling::inline v0::detail {

/// The product of queries (rows, size) and transposed keys, deferred; nothing unless it can be attention's scores.
/// `multiply` makes its values, of these sizes.
using MultiplyScores = std::function<at::Tensor(const at::Tensor& queries, const at::Tensor& keys)>;
std::optional<at::Tensor> defer_scores(const at::Tensor& queries, const Layout& query_layout, const at::Tensor& keys,
                                       const Layout& key_layout, const Structure& structure, c10::IntArrayRef sizes,
                                       const MultiplyScores& multiply);

/// Finishes the call without values if its first argument has none yet, and the operator needs none: softmax and
/// dropout of scores, their product with values (by a fused kernel), the mean over heads.
/// @return false when the operator must be called as always
bool call_on_deferred(Call& call);

}  // namespace danling::inline v0::detail
