// Logits to probabilities, if scores are logits, on the host and on devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics::detail {

enum class Activation { sigmoid, softmax };

// For scores, [items] or [rows, columns]: logits, as decided by `kind`, go through the sigmoid, or the softmax of their
// row, in their dtype, integers in float32. Others stay unchanged, and so do bools.

/// @throws MetricError, which begins with `where`, for values that are no probabilities if `kind` requires them.
at::Tensor probabilities_on_host(const at::Tensor& scores, Activation activation, Scores kind, const char* where);

/// Does not wait: the device decides whether they are logits, from the rows whose `counted`, bool, is true; from all if
/// it is undefined.
at::Tensor probabilities_on_device(const at::Tensor& scores, const at::Tensor& counted, Activation activation,
                                   Scores kind);

}  // namespace danling::inline v0::metrics::detail
