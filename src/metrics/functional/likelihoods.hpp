// How likely each target is under the softmax of its scores, on the host.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::metrics::detail {

/// [the sum of -log p, how many count] of logits [items, vocabulary] and targets [items] within the vocabulary, or
/// ignored. float32 and narrower logits in float32, but for what is added up, and however large they are; others in
/// float64.
at::Tensor likelihoods_on_host(const at::Tensor& rows, const at::Tensor& labels,
                               std::optional<std::int64_t> ignore_index);

}  // namespace danling::inline v0::metrics::detail
