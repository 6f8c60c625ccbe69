// Detection of tensors that share memory, which must not be changed in parallel or twice.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/optim/optimizer.hpp>

namespace danling::inline v0::optim::detail {

/// The indices of tensors that share memory with an earlier one, in ascending order. Interleaved ranges without a
/// common element count as well. No device wait.
std::vector<std::size_t> find_overlapping(at::TensorList tensors);

/// Separates gradients that share memory, so that in-place changes apply once: autograd makes `a` and `b` share it for
/// a loss of `a.view(shape) + b.view(shape)`, and a program may assign a broadcast one. Costs a check of each gradient;
/// copies only those that share.
void separate_gradients(const std::vector<at::Tensor>& params);
void separate_gradients(const std::vector<ParamGroup>& groups);

}  // namespace danling::inline v0::optim::detail
