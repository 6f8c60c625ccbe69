#include <tensors/nested/impl.hpp>

#include <algorithm>
#include <utility>

#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

namespace danling::inline v0::detail {

bool Structure::is_ragged(std::int64_t element_dim) const {
  return std::find(ragged_dims.begin(), ragged_dims.end(), element_dim) != ragged_dims.end();
}

std::optional<std::int64_t> Structure::element_dim(std::int64_t dim, std::int64_t element_rank) const {
  const std::int64_t rank = element_rank + 1;
  check<DataError>(dim >= -rank && dim < rank, "nested_tensor.dim", "expected a dimension from ", -rank, " to ",
                   rank - 1, ", got ", dim);
  const std::int64_t at = dim < 0 ? dim + rank : dim, batch = batch_dim(element_rank);
  return at == batch ? std::nullopt : std::optional(at - (at > batch ? 1 : 0));
}

std::int64_t Structure::tensor_dim(std::int64_t element_dim, std::int64_t element_rank) const {
  return element_dim + (element_dim >= batch_dim(element_rank) ? 1 : 0);
}

std::int64_t Structure::values_dim(std::int64_t element_dim) const {
  return 1 + element_dim -
         std::count_if(ragged_dims.begin(), ragged_dims.end(), [&](std::int64_t dim) { return dim < element_dim; });
}

std::size_t Structure::ragged_index(std::int64_t element_dim) const {
  return static_cast<std::size_t>(std::find(ragged_dims.begin(), ragged_dims.end(), element_dim) - ragged_dims.begin());
}

NestedTensorImpl::NestedTensorImpl(at::Tensor values, Structure structure)
    : TensorImpl(c10::DispatchKeySet({nested_key, autograd_nested_key}), values.dtype(), values.device()),
      values_(std::move(values)),
      structure_(std::move(structure)) {
  finish_construction();
}

NestedTensorImpl::NestedTensorImpl(std::shared_ptr<Deferred> values, Structure structure)
    : TensorImpl(c10::DispatchKeySet({nested_key, autograd_nested_key}), values->shape().dtype, values->shape().device),
      deferred_(std::move(values)),
      structure_(std::move(structure)) {
  finish_construction();
}

void NestedTensorImpl::finish_construction() {
  // With this key, LibTorch's view kernels would run first in InferenceMode, where this tensor is not an inference
  // tensor. TensorImpl::is_inference asserts in debug builds that the key is set, so code here reads the version
  // counter instead.
  key_set_ = key_set_.remove(c10::DispatchKey::ADInplaceOrView);
  // Autocast treats the tensor as one of its device, even without plain tensors among the arguments.
  key_set_ = key_set_ | c10::getAutocastRelatedKeySetFromBackend(
                            c10::toBackendComponent(c10::computeDispatchKey(std::nullopt, std::nullopt, device())));
  set_storage_access_should_throw();
  set_custom_sizes_strides(SizesStridesPolicy::CustomSizes);
  update_sizes();
}

void NestedTensorImpl::update_sizes() {
  const std::int64_t rank = element_rank();
  c10::DimVector sizes;
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    sizes.push_back(structure_.is_ragged(dim) ? structure_.ragged->longest()[structure_.ragged_index(dim)]
                                              : values_sizes()[static_cast<std::size_t>(structure_.values_dim(dim))]);
  }
  sizes.insert(sizes.begin() + structure_.batch_dim(rank), structure_.batch());
  // Sizes are those of the padded tensor; only numel differs: it counts the values.
  set_custom_sizes_strides(SizesStridesPolicy::Default);
  set_sizes_contiguous(sizes);
  set_custom_sizes_strides(SizesStridesPolicy::CustomSizes);
}

c10::DimVector NestedTensorImpl::element_sizes(std::int64_t element) const {
  c10::DimVector sizes;
  for (std::int64_t dim = 0; dim < element_rank(); ++dim) {
    sizes.push_back(structure_.is_ragged(dim) ? structure_.ragged->sizes(element)[structure_.ragged_index(dim)]
                                              : values_sizes()[static_cast<std::size_t>(structure_.values_dim(dim))]);
  }
  return sizes;
}

std::int64_t NestedTensorImpl::numel_custom() const { return c10::multiply_integers(values_sizes()); }

void NestedTensorImpl::set_values(at::Tensor values) {
  values_ = std::move(values);
  deferred_ = nullptr;
}

void NestedTensorImpl::set_structure(at::Tensor values, Structure structure) {
  set_values(std::move(values));
  structure_ = std::move(structure);
  update_sizes();
}

c10::intrusive_ptr<NestedTensorImpl> NestedTensorImpl::copy(bool allow_tensor_metadata_change) const {
  auto out = c10::make_intrusive<NestedTensorImpl>(values().detach(), structure_);
  out->set_allow_tensor_metadata_change(allow_tensor_metadata_change);
  return out;
}

c10::intrusive_ptr<c10::TensorImpl> NestedTensorImpl::shallow_copy_and_detach(const c10::VariableVersion& version,
                                                                              bool allow_change) const {
  auto out = copy(allow_change);
  out->version_counter_ = version;
  return out;
}

c10::intrusive_ptr<c10::TensorImpl> NestedTensorImpl::shallow_copy_and_detach(c10::VariableVersion&& version,
                                                                              bool allow_change) const {
  auto out = copy(allow_change);
  out->version_counter_ = std::move(version);
  return out;
}

void NestedTensorImpl::shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& other) {
  const auto* from = static_cast<const NestedTensorImpl*>(other.get());
  check<DataError>(other->key_set().has(nested_key), "nested_tensor.set_data", "expected a NestedTensor, got a tensor");
  set_values(from->values().detach());
  structure_ = from->structure_;
  data_type_ = from->data_type_;
  device_opt_ = from->device_opt_;
  update_sizes();
}

at::Tensor readable(const at::Tensor& plain) {
  return plain._is_zerotensor() ? at::zeros(plain.sizes(), plain.options())
                                : plain.resolve_conj().resolve_neg().contiguous();
}

ShapesText::operator std::string_view() const {
  if (tensor_ == nullptr || !tensor_->key_set().has(nested_key)) {
    return text_ = tensor_ == nullptr ? "" : concat("(", join(tensor_->sizes()), ")");
  }
  constexpr std::int64_t most = 6;
  const auto& nested = static_cast<const NestedTensorImpl&>(*tensor_);
  const std::int64_t batch = nested.structure().batch();
  text_ = batch == 0 ? "no elements" : "";
  for (std::int64_t element = 0; element < std::min(batch, most); ++element) {
    text_ += concat(element > 0 ? ", (" : "(", join(nested.element_sizes(element)), ")");
  }
  text_ += batch > most ? concat(" and ", batch - most, " more") : "";
  return text_;
}

std::string text_of_layouts(const NestedTensorImpl& one, const NestedTensorImpl& other) {
  const Structure &left = one.structure(), &right = other.structure();
  if (one.element_rank() > 0 && left.batch_first != right.batch_first) {
    return concat("; the batch is dimension ", left.batch_dim(one.element_rank()), " of the first and ",
                  right.batch_dim(other.element_rank()), " of the second: transpose(0, 1) one of them");
  }
  if (one.element_rank() == other.element_rank() && left.ragged_dims != right.ragged_dims) {
    return concat("; the first is ragged along (", join(left.ragged_dims), "), the second along (",
                  join(right.ragged_dims), "): see the option ragged_dims");
  }
  return {};
}

}  // namespace danling::inline v0::detail
