// Logits to probabilities, where scores are logits, on the host and on devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics::detail {

enum class Activation { sigmoid, softmax };

// Of scores, [items] or [rows, columns]: logits, told as `kind` says, go through the sigmoid, or the softmax of their
// row, in their dtype, integers in float32. Others stay, and so do bools.

/// @throws MetricError, which begins with `where`, for what is no probability where `kind` says that all are.
at::Tensor probabilities_on_host(const at::Tensor& scores, Activation activation, Scores kind, const char* where);

/// Does not wait: which it is is decided on the device. Of rows for which `counted`, bool, is false the values do not
/// decide; undefined: all do.
at::Tensor probabilities_on_device(const at::Tensor& scores, const at::Tensor& counted, Activation activation,
                                   Scores kind);

}  // namespace danling::inline v0::metrics::detail
