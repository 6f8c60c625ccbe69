// Converts logits to probabilities, on the host and on devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics::detail {

enum class Activation { sigmoid, softmax };

// Scores are [items] or [rows, columns]. If they are logits, as `kind` decides, applies the sigmoid, or the softmax
// over a row, in their dtype (integers in float32). Other scores and bools stay unchanged.

/// @throws MetricError, prefixed with `where`, for values that are not probabilities if `kind` requires them.
at::Tensor probabilities_on_host(const at::Tensor& scores, Activation activation, Scores kind, const char* where);

/// Does not wait: the device decides whether scores are logits, from the rows where `counted` (bool) is true, or from
/// all rows if it is undefined.
at::Tensor probabilities_on_device(const at::Tensor& scores, const at::Tensor& counted, Activation activation,
                                   Scores kind);

}  // namespace danling::inline v0::metrics::detail
