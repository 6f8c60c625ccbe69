// LossProbe: the losses of one of several models, for the learning rate finder.
#pragma once

#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// Sums the losses passed to backward(loss, model) in a micro-batch.
struct LossProbe {
  std::string model;
  at::Tensor sum = {};

  void add(const at::Tensor& loss) { sum = sum.defined() ? sum.add(loss.detach()) : loss.detach(); }
  at::Tensor take() { return std::exchange(sum, at::Tensor()); }
};

}  // namespace danling::inline v0::detail
