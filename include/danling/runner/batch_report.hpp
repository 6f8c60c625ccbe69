// BatchReport, the result of a micro-batch in a loop that the program owns.
#pragma once

#include <ATen/core/Tensor.h>

namespace danling::inline v0 {

/// Result of train_on_batch() and evaluate_on_batch().
struct BatchReport {
  at::Tensor loss;       ///< on its device; undefined if the step returns none
  bool updated = false;  ///< the optimizer ran; on a device it may have skipped the update
  bool done = false;     ///< training has ended: by `steps` of the config, or by a callback; false in an evaluation
};

}  // namespace danling::inline v0
