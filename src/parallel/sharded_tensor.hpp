// Parameters with custom dispatch keys: sharded ones, which have no values, slices with a style, and views of both.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <parallel/sharded_parameters.hpp>

namespace danling::inline v0::detail {

/// Before all kernels of LibTorch, which has none for this key. One above NestedTensor's key, so that a sharded
/// parameter gets its values before a nested tensor's kernel sees it.
inline constexpr c10::DispatchKey sharded_key = c10::DispatchKey::PrivateUse3;
inline constexpr c10::DispatchKey autograd_sharded_key = c10::DispatchKey::AutogradPrivateUse3;

struct ParameterStyle;

/// The location of the values for kernels, and the whole of which they are a slice.
struct ShardMeta final : c10::BackendMeta {
  std::weak_ptr<ShardedParameters> owner;
  std::weak_ptr<ShardUnit> unit;
  std::string name;
  at::Tensor values;         ///< the whole tensor, or a view of it; undefined if nothing is sharded
  c10::DispatchKeySet keys;  ///< keys of the tensor before it was marked
  c10::intrusive_ptr<c10::BackendMeta> unsharded = nullptr;  ///< previous metadata of a sharded parameter
  std::shared_ptr<const ParameterStyle> style;               ///< tensor parallel style; null without one
  bool is_transposed = false;                                ///< a view with the parameter's dimensions swapped
  bool is_detached = false;  ///< from detach(): its use needs no gradients of other ranks
};

/// Null for other tensors.
ShardMeta* shard_meta(const at::Tensor& tensor);

/// Sets the keys and a style of a tensor, which keeps its values; replaces the previous style.
void mark_style(const at::Tensor& tensor, std::string_view name, std::shared_ptr<const ParameterStyle> style,
                bool is_transposed = false, bool is_detached = false);
/// The same values without keys, at the same position in the graph; in no graph if nothing is recorded.
at::Tensor without_style(const at::Tensor& tensor);

/// detach() that also removes the style.
at::Tensor detached_values(const at::Tensor& tensor);

/// A tensor that represents a view of whole parameters.
at::Tensor make_sharded_view(const at::Tensor& view, const ShardMeta& of);

/// Registers kernels for all operators, at the first call. Thread-safe.
void register_parameter_kernels();

}  // namespace danling::inline v0::detail
