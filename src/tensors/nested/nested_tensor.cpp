// Construction of a NestedTensor, its views and copies.
#include <danling/tensors/nested_tensor.hpp>

#include <algorithm>

#include <ATen/Functions.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include <tensors/nested/construction.hpp>
#include <tensors/nested/operators.hpp>

namespace danling::inline v0 {
namespace {

using detail::NestedTensorImpl;
using detail::Structure;
using detail::structure_of;
using detail::with_options;

const NestedTensorImpl& impl_of(const at::Tensor& tensor) { return *detail::nested(tensor); }

at::Tensor make(const std::vector<at::Tensor>& elements, const NestedTensorOptions& options) {
  constexpr const char* where = "nested_tensor.constructor";
  detail::register_operators();
  std::vector<at::Tensor> out;
  std::optional<at::ScalarType> dtype = options.dtype;
  for (const at::Tensor& element : elements) {
    check<DataError>(element.defined() && !NestedTensor::is_nested(element), where,
                     "expected tensors as elements, got ", element.defined() ? "a NestedTensor" : "an undefined tensor",
                     " at ", out.size(), element.defined() ? "; cat({a, b}, 0) makes one batch of two" : "");
    const at::Tensor& first = elements.front();
    check<DataError>(element.dim() == first.dim(), where, "expected elements of one rank, got shapes (",
                     join(first.sizes()), ") at 0 and (", join(element.sizes()), ") at ", out.size());
    check<DataError>(options.device || element.device() == first.device(), where,
                     "expected elements on one device, got ", first.device().str(), " at 0 and ",
                     element.device().str(), " at ", out.size(), "; set the option `device`");
    if (!options.dtype) {
      dtype = dtype ? at::promote_types(*dtype, element.scalar_type()) : element.scalar_type();
    }
    out.push_back(element);
  }
  for (at::Tensor& element : out) {
    element = element.to(element.options().dtype(*dtype).device(options.device.value_or(element.device())));
  }
  if (out.empty()) {
    Structure structure = structure_of(options);
    structure.ragged = std::make_shared<detail::Ragged>(0, 1, std::vector<std::int64_t>());
    structure.ragged_dims = {0};
    return detail::wrap(at::empty({0}, at::TensorOptions(options.dtype.value_or(at::get_default_dtype_as_scalartype()))
                                           .device(options.device.value_or(at::kCPU))),
                        structure);
  }
  std::vector<std::vector<std::int64_t>> shapes;
  for (const at::Tensor& element : out) {
    shapes.push_back(element.sizes().vec());
  }
  const Structure structure = detail::structure_for(shapes, options, where);
  return with_options(detail::nest(out, structure, structure.ragged_dims), options);
}

}  // namespace

namespace detail {

Structure structure_of(const NestedTensorOptions& options) {
  Structure out;
  out.batch_first = options.batch_first;
  out.padding_value = options.padding_value;
  out.mask_value = options.mask_value;
  return out;
}

/// Applies dtype, device, pin_memory and requires_grad.
at::Tensor with_options(at::Tensor tensor, const NestedTensorOptions& options) {
  const NestedTensorImpl& impl = *nested(tensor);
  at::Tensor values = values_of(tensor);
  values = values.to(values.options()
                         .dtype(options.dtype.value_or(values.scalar_type()))
                         .device(options.device.value_or(values.device())));
  if (options.pin_memory && values.is_cpu()) {
    values = values.pin_memory();
  }
  if (!values.is_same(impl.values())) {
    tensor = wrap(std::move(values), impl.structure());
  }
  return options.requires_grad ? tensor.detach().requires_grad_(*options.requires_grad) : tensor;
}

}  // namespace detail

NestedTensor::NestedTensor(const std::vector<at::Tensor>& elements, const NestedTensorOptions& options)
    : at::Tensor(make(elements, options)) {}

NestedTensor::NestedTensor(std::initializer_list<at::Tensor> elements)
    : at::Tensor(elements.size() == 1 && is_nested(*elements.begin()) ? *elements.begin()
                                                                      : make(std::vector<at::Tensor>(elements), {})) {}

NestedTensor::NestedTensor(at::Tensor nested) : at::Tensor(std::move(nested)) {
  check<DataError>(
      is_nested(*this), "nested_tensor.constructor", "expected a NestedTensor, got ",
      defined() ? danling::detail::concat("a tensor of shape (", join(sizes()), ")") : "an undefined tensor");
}

at::Tensor NestedTensor::tensor() const {
  const Structure& structure = impl_of(*this).structure();
  return detail::pad(detail::values_of(*this), structure, structure.padding_value);
}

at::Tensor NestedTensor::mask() const {
  const NestedTensorImpl& impl = impl_of(*this);
  const Structure& structure = impl.structure();
  const at::Tensor rows =
      at::full({structure.ragged->rows()}, !structure.mask_value, at::TensorOptions(at::kBool).device(device()));
  const std::int64_t rank = impl.element_rank();
  const bool drop_last = rank > 1 && !structure.is_ragged(rank - 1);
  c10::DimVector sizes = {rows.size(0)};
  for (std::int64_t dim = 0; dim < rank - (drop_last ? 1 : 0); ++dim) {
    if (!structure.is_ragged(dim)) {
      sizes.push_back(impl.values().size(structure.values_dim(dim)));
    }
  }
  std::vector<std::int64_t> ones(sizes.size(), 1);
  ones[0] = rows.size(0);
  return detail::pad(rows.view(ones).expand(sizes), structure, structure.mask_value);
}

at::Tensor NestedTensor::concat() const { return detail::values_of(*this); }

std::pair<at::Tensor, std::vector<std::vector<std::int64_t>>> NestedTensor::concatenate() const {
  return {concat(), shapes()};
}

std::int64_t NestedTensor::batch_size() const { return impl_of(*this).structure().batch(); }
at::Tensor NestedTensor::offsets() const { return impl_of(*this).structure().ragged->offsets_on(device()); }

std::vector<std::vector<std::int64_t>> NestedTensor::shapes() const {
  std::vector<std::vector<std::int64_t>> out;
  for (std::int64_t element = 0; element < batch_size(); ++element) {
    const auto sizes = impl_of(*this).element_sizes(element);
    out.emplace_back(sizes.begin(), sizes.end());
  }
  return out;
}

bool NestedTensor::has_lengths_of(const NestedTensor& other) const {
  const Structure& own = impl_of(*this).structure();
  const Structure& theirs = impl_of(other).structure();
  return detail::same(own.ragged, theirs.ragged) && own.ragged_dims == theirs.ragged_dims;
}

std::vector<std::int64_t> NestedTensor::ragged_dims() const {
  const auto& dims = impl_of(*this).structure().ragged_dims;
  return {dims.begin(), dims.end()};
}

std::vector<at::Tensor> NestedTensor::elements() const { return detail::elements_of(*this); }
bool NestedTensor::batch_first() const { return impl_of(*this).structure().batch_first; }
double NestedTensor::padding_value() const { return impl_of(*this).structure().padding_value; }
bool NestedTensor::mask_value() const { return impl_of(*this).structure().mask_value; }

at::Tensor NestedTensor::operator[](std::int64_t element) const {
  const Structure& structure = impl_of(*this).structure();
  return select(structure.batch_dim(impl_of(*this).element_rank()), element);
}

double NestedTensor::occupancy() const {
  const std::int64_t padded = c10::multiply_integers(sizes());
  return padded == 0 ? 0.0 : static_cast<double>(numel()) / static_cast<double>(padded);
}

std::vector<at::Tensor> NestedTensor::host_elements(at::ScalarType type) const {
  const Structure& structure = impl_of(*this).structure();
  const at::Tensor values = impl_of(*this).values().detach().to(at::kCPU, type);
  std::vector<at::Tensor> out;
  for (std::int64_t element = 0; element < structure.batch(); ++element) {
    out.push_back(detail::readable(detail::element_of(values, structure, element)));
  }
  return out;
}

at::Tensor NestedTensor::to_torch_nested() const { return at::_nested_tensor_from_tensor_list(elements()); }

NestedTensor NestedTensor::with_batch_first(bool batch_first) const {
  Structure structure = impl_of(*this).structure();
  structure.batch_first = batch_first;
  return NestedTensor(detail::wrap(concat(), std::move(structure)));
}

NestedTensor NestedTensor::with_padding_value(double padding_value) const {
  Structure structure = impl_of(*this).structure();
  structure.padding_value = padding_value;
  return NestedTensor(detail::wrap(concat(), std::move(structure)));
}

NestedTensor NestedTensor::with_mask_value(bool mask_value) const {
  Structure structure = impl_of(*this).structure();
  structure.mask_value = mask_value;
  return NestedTensor(detail::wrap(concat(), std::move(structure)));
}

NestedTensor NestedTensor::shallow_copy() const {
  return NestedTensor(detail::wrap(concat(), impl_of(*this).structure()));
}

NestedTensor NestedTensor::deep_copy() const {
  return NestedTensor(detail::wrap(impl_of(*this).values().detach().clone(), impl_of(*this).structure())
                          .requires_grad_(requires_grad()));
}

}  // namespace danling::inline v0
