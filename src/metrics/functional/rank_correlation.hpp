// Rank correlations per output.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <danling/metrics/functional/correlation.hpp>

namespace danling::inline v0::metrics::detail {

/// Takes predictions and targets [N] or [N, outputs]; returns [outputs], float64. Skips rows with a nan target.
at::Tensor spearman_on_host(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs);
at::Tensor spearman_on_device(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs);
at::Tensor kendall_on_host(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs,
                           KendallVariant variant);

}  // namespace danling::inline v0::metrics::detail
