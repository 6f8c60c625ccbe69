#include <parallel/sharded_tensor.hpp>

#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

const c10::DispatchKeySet sharded_keys({sharded_key, autograd_sharded_key});

/// Access to the keys of an existing tensor. LibTorch changes them itself when a tensor's backend changes
/// (set_python_dispatch, _change_backend_component_keys), but has no function for custom keys.
struct KeysOf : c10::TensorImpl {
  static c10::DispatchKeySet& get(c10::TensorImpl& impl) { return impl.*&KeysOf::key_set_; }
};

/// Removes the keys of LibTorch's view kernels, which would run before ours in InferenceMode.
c10::DispatchKeySet with_our_keys(c10::DispatchKeySet keys) {
  return (keys | sharded_keys).remove(c10::DispatchKey::ADInplaceOrView);
}

/// The unit of a parameter, including a plain one; null for others.
std::shared_ptr<ShardUnit> unit_of(const at::Tensor& parameter) {
  if (!parameter.defined()) {
    return nullptr;
  }
  const auto* meta = dynamic_cast<const ShardMeta*>(parameter.unsafeGetTensorImpl()->get_backend_meta());
  return meta != nullptr ? meta->unit.lock() : nullptr;
}

}  // namespace

ShardMeta* shard_meta(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->key_set().has(sharded_key)) {
    return nullptr;
  }
  return static_cast<ShardMeta*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}

at::Tensor detached_values(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return shard_meta(tensor) != nullptr ? without_style(tensor) : tensor.detach();
}

at::Tensor rows_of_sharded(const at::Tensor& parameter) {
  const auto unit = unit_of(parameter);
  if (unit == nullptr) {
    return parameter;
  }
  for (const ShardedParameter& known : unit->parameters()) {
    if (known.parameter.is_same(parameter)) {
      return known.rows;
    }
  }
  return parameter;
}

bool is_sharded(const at::Tensor& tensor) {
  const ShardMeta* meta = shard_meta(tensor);
  return (meta != nullptr && meta->values.defined()) || unit_of(tensor) != nullptr;
}

void remember_rows(const at::Tensor& parameter, const std::shared_ptr<ShardUnit>& unit) {
  const ShardMeta* before = shard_meta(parameter);  // keeps the style of a slice
  auto meta = before != nullptr ? c10::make_intrusive<ShardMeta>(*before) : c10::make_intrusive<ShardMeta>();
  meta->unit = unit;
  parameter.unsafeGetTensorImpl()->set_backend_meta(std::move(meta));
}

void mark_style(const at::Tensor& tensor, std::string_view name, std::shared_ptr<const ParameterStyle> style,
                bool is_transposed, bool is_detached) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  auto meta = c10::make_intrusive<ShardMeta>();
  meta->name = name;
  meta->style = std::move(style);
  meta->is_transposed = is_transposed;
  meta->is_detached = is_detached;
  const ShardMeta* before = shard_meta(tensor);
  meta->keys = before != nullptr ? before->keys : impl.key_set();
  impl.set_backend_meta(std::move(meta));
  KeysOf::get(impl) = with_our_keys(KeysOf::get(impl));
}

at::Tensor without_style(const at::Tensor& tensor) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  // Shares the version counter: a change of the parameter between forward and backward is detected.
  at::Tensor out(impl.shallow_copy_and_detach(impl.version_counter(), /*allow_tensor_metadata_change=*/true));
  out.unsafeGetTensorImpl()->set_backend_meta(nullptr);
  KeysOf::get(*out.unsafeGetTensorImpl()) = shard_meta(tensor)->keys;
  if (c10::GradMode::is_enabled() && tensor.requires_grad()) {
    // For a parameter, this is the node that accumulates its gradient.
    torch::autograd::impl::set_gradient_edge(out, torch::autograd::impl::gradient_edge(tensor));
  }
  return out;
}

void mark_sharded(const at::Tensor& parameter, const std::shared_ptr<ShardedParameters>& owner,
                  const std::shared_ptr<ShardUnit>& unit, std::string_view name, const at::Tensor& whole) {
  c10::TensorImpl& impl = *parameter.unsafeGetTensorImpl();
  auto meta = c10::make_intrusive<ShardMeta>();
  meta->owner = owner;
  meta->unit = unit;
  meta->name = name;
  meta->values = whole;
  meta->keys = impl.key_set();
  if (const ShardMeta* before = shard_meta(parameter)) {
    meta->style = before->style;
    meta->unsharded = impl.get_backend_meta_intrusive_ptr();
  }
  impl.set_backend_meta(std::move(meta));
  c10::Allocator* allocator = whole.storage().unsafeGetStorageImpl()->allocator();
  at::Storage none(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, parameter.device()), allocator, false);
  none.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      concat("[parallel.fsdp] expected memory that this rank has, got that of the sharded parameter ", quote(name),
             "; read it inside of a dl::ShardedModel::FullParameters (in a run: runner.gather_parameters())"));
  impl.set_storage_keep_dtype(std::move(none));
  KeysOf::get(impl) = with_our_keys(KeysOf::get(impl));
}

void unmark_sharded(const at::Tensor& parameter, const at::Tensor& whole) {
  c10::TensorImpl& impl = *parameter.unsafeGetTensorImpl();
  const auto before = c10::make_intrusive<ShardMeta>(*shard_meta(parameter));
  KeysOf::get(impl) = before->keys;
  impl.set_backend_meta(before->unsharded);
  impl.set_sizes_and_strides(whole.sizes(), whole.strides(), whole.storage_offset());
  impl.set_storage_keep_dtype(whole.storage());
}

at::Tensor make_sharded_view(const at::Tensor& view, const ShardMeta& of) {
  at::Tensor out = at::detail::make_tensor<c10::TensorImpl>(with_our_keys(view.key_set()), view.dtype(),
                                                            std::optional<at::Device>(view.device()));
  out.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes(), view.strides(), view.storage_offset());
  auto meta = c10::make_intrusive<ShardMeta>(of);
  meta->values = view;
  out.unsafeGetTensorImpl()->set_backend_meta(std::move(meta));
  return out;
}

}  // namespace danling::inline v0::detail
