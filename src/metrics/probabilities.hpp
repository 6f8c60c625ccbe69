// Logits to probabilities, where scores are logits, on the host and on devices.
#pragma once

#include <ATen/core/Tensor.h>

namespace danling::inline v0::metrics::detail {

enum class Activation { sigmoid, softmax };

// Scores, [items] or [rows, columns], are logits when one lies outside [0, 1]; nan does not. All then go through the
// sigmoid, or the softmax of their row, in their dtype, integers in float32. Others stay.

at::Tensor probabilities_on_host(const at::Tensor& scores, Activation activation);

/// Does not wait: which it is is decided on the device. Of rows for which `counted`, bool, is false the values do not
/// decide; undefined: all do.
at::Tensor probabilities_on_device(const at::Tensor& scores, const at::Tensor& counted, Activation activation);

}  // namespace danling::inline v0::metrics::detail
