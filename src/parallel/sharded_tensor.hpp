// Parameters that operators see: sharded ones, which have no values, slices with a style, and views of both.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include "parallel/sharded_parameters.hpp"

namespace danling::inline v0::detail {

/// In front of all kernels of LibTorch, none of which has a kernel for them. One above that of NestedTensor, so that a
/// sharded parameter has its values before a nested tensor meets it.
inline constexpr c10::DispatchKey sharded_key = c10::DispatchKey::PrivateUse3;
inline constexpr c10::DispatchKey autograd_sharded_key = c10::DispatchKey::AutogradPrivateUse3;

struct ParameterStyle;

/// Where an operator finds the values, and what they are a slice of.
struct ShardMeta final : c10::BackendMeta {
  std::weak_ptr<ShardedParameters> owner;
  std::weak_ptr<ShardUnit> unit;
  std::string name;
  at::Tensor values;         ///< the whole tensor, or a view of it; undefined where nothing is sharded
  c10::DispatchKeySet keys;  ///< of the tensor before it got this
  c10::intrusive_ptr<c10::BackendMeta> unsharded = nullptr;  ///< that a sharded parameter had before
  std::shared_ptr<const ParameterStyle> style;               ///< of tensor parallel; null without
  bool is_transposed = false;                                ///< a view with the dimensions of the parameter swapped
  bool is_detached = false;                                  ///< of detach(): its use needs no gradients of other ranks
};

/// Null for other tensors.
ShardMeta* shard_meta(const at::Tensor& tensor);

/// Sets the keys and a style of a tensor, which keeps its values; replaces an earlier style.
void mark_style(const at::Tensor& tensor, std::string_view name, std::shared_ptr<const ParameterStyle> style,
                bool is_transposed = false, bool is_detached = false);
/// The same values without keys, at the same place in the graph; in no graph where nothing is recorded.
at::Tensor without_style(const at::Tensor& tensor);

/// detach(), which leaves the style too.
at::Tensor detached_values(const at::Tensor& tensor);

/// A tensor that stands for a view of whole parameters.
at::Tensor make_sharded_view(const at::Tensor& view, const ShardMeta& of);

/// Kernels for every operator, at the first call. Thread-safe.
void register_parameter_kernels();

}  // namespace danling::inline v0::detail
