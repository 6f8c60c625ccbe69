// Tensors without values that stand for sharded parameters and views of them.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include "parallel/sharded_parameters.hpp"

namespace danling::inline v0::detail {

/// In front of all kernels of LibTorch, none of which has a kernel for them. One above that of NestedTensor, so that a
/// sharded parameter has its values before a nested tensor meets it.
inline constexpr c10::DispatchKey sharded_key = c10::DispatchKey::PrivateUse3;
inline constexpr c10::DispatchKey autograd_sharded_key = c10::DispatchKey::AutogradPrivateUse3;

/// Where an operator finds the values.
struct ShardMeta final : c10::BackendMeta {
  std::weak_ptr<ShardedParameters> owner;
  std::weak_ptr<ShardUnit> unit;
  std::string name;
  at::Tensor values;         ///< the whole tensor, or a view of it
  c10::DispatchKeySet keys;  ///< of the tensor before it got ours
};

/// Null for other tensors.
ShardMeta* shard_meta(const at::Tensor& tensor);

/// A tensor that stands for a view of whole parameters.
at::Tensor make_sharded_view(const at::Tensor& view, const ShardMeta& of);

/// Kernels for every operator, at the first call. Thread-safe.
void register_parameter_kernels();

}  // namespace danling::inline v0::detail
