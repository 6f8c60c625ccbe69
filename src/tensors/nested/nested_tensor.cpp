#include <danling/tensors/nested_tensor.hpp>

#include <algorithm>
#include <sstream>

#include <ATen/Functions.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include "tensors/nested/impl.hpp"
#include "tensors/nested/operators.hpp"

namespace danling::inline v0 {
namespace {

using detail::NestedTensorImpl;
using detail::Structure;

const NestedTensorImpl& impl_of(const at::Tensor& tensor) { return *detail::nested(tensor); }

Structure structure_of(const NestedTensorOptions& options) {
  Structure out;
  out.batch_first = options.batch_first;
  out.padding_value = options.padding_value;
  out.mask_value = options.mask_value;
  return out;
}

at::Tensor make(const std::vector<at::Tensor>& elements, const NestedTensorOptions& options) {
  constexpr const char* where = "nested_tensor.constructor";
  detail::register_operators();
  std::vector<at::Tensor> out;
  std::optional<at::ScalarType> dtype = options.dtype;
  for (const at::Tensor& element : elements) {
    check<DataError>(element.defined() && !NestedTensor::is_nested(element), where,
                     "expected tensors as elements, got ", element.defined() ? "a NestedTensor" : "an undefined tensor",
                     " at ", out.size());
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
  at::Tensor tensor = detail::nest(out, structure_of(options));
  if (options.pin_memory && tensor.is_cpu()) {
    tensor = detail::wrap(impl_of(tensor).values().pin_memory(), impl_of(tensor).structure());
  }
  if (options.requires_grad) {
    tensor = tensor.detach().requires_grad_(*options.requires_grad);
  }
  return tensor;
}

}  // namespace

NestedTensor::NestedTensor(const std::vector<at::Tensor>& elements, const NestedTensorOptions& options)
    : at::Tensor(make(elements, options)) {}

NestedTensor::NestedTensor(at::Tensor nested) : at::Tensor(std::move(nested)) {
  check<DataError>(is_nested(*this), "nested_tensor.constructor", "expected a NestedTensor, got ",
                   defined() ? danling::concat("a tensor of shape (", join(sizes()), ")") : "an undefined tensor");
}

bool NestedTensor::is_nested(const at::Tensor& tensor) { return detail::nested(tensor) != nullptr; }

at::Tensor NestedTensor::tensor() const {
  const Structure& structure = impl_of(*this).structure();
  return detail::pad(detail::values_of(*this), structure, structure.padding_value);
}

at::Tensor NestedTensor::mask() const {
  const Structure& structure = impl_of(*this).structure();
  const at::Tensor rows =
      at::full({structure.ragged->rows()}, !structure.mask_value, at::TensorOptions(at::kBool).device(device()));
  return detail::pad(rows, structure, structure.mask_value);
}

at::Tensor NestedTensor::concat() const { return detail::values_of(*this); }

std::pair<at::Tensor, std::vector<std::vector<std::int64_t>>> NestedTensor::concatenate() const {
  return {concat(), shapes()};
}

NestedTensor NestedTensor::from_concatenated(const at::Tensor& values,
                                             const std::vector<std::vector<std::int64_t>>& shapes,
                                             const NestedTensorOptions& options) {
  constexpr const char* where = "nested_tensor.from_concatenated";
  detail::register_operators();
  const std::size_t rank = shapes.empty() ? 1 : shapes.front().size();
  c10::DimVector ragged;
  for (const std::int64_t dim : options.ragged_dims.value_or(std::vector<std::int64_t>())) {
    check<DataError>(dim >= 0 && dim < static_cast<std::int64_t>(rank) && (ragged.empty() || dim > ragged.back()),
                     where, "expected ragged dimensions of 0 to ", rank - 1, ", ascending, got ",
                     join(*options.ragged_dims));
    ragged.push_back(dim);
  }
  for (std::size_t dim = 0; dim < rank; ++dim) {
    for (const auto& shape : shapes) {
      check<DataError>(shape.size() == rank, where, "expected shapes of one rank, got (", join(shapes.front()),
                       ") and (", join(shape), ")");
      if (shape[dim] != shapes.front()[dim] &&
          std::find(ragged.begin(), ragged.end(), static_cast<std::int64_t>(dim)) == ragged.end()) {
        check<DataError>(!options.ragged_dims, where, "expected sizes that differ only along ragged_dims (",
                         join(ragged), "), got (", join(shapes.front()), ") and (", join(shape), ")");
        ragged.push_back(static_cast<std::int64_t>(dim));
        break;
      }
    }
  }
  if (ragged.empty() && rank > 0) {
    ragged.push_back(0);
  }
  std::vector<std::int64_t> sizes, expected = {0};
  for (const auto& shape : shapes) {
    std::int64_t rows = 1;
    for (const std::int64_t dim : ragged) {
      sizes.push_back(shape[static_cast<std::size_t>(dim)]);
      check<DataError>(sizes.back() >= 0, where, "expected sizes of 0 or above, got (", join(shape), ")");
      rows *= sizes.back();
    }
    expected[0] += rows;
  }
  Structure structure = structure_of(options);
  for (std::size_t dim = 0; dim < rank && !shapes.empty(); ++dim) {
    if (std::find(ragged.begin(), ragged.end(), static_cast<std::int64_t>(dim)) == ragged.end()) {
      expected.push_back(shapes.front()[dim]);
    }
  }
  check<DataError>(shapes.empty() || values.sizes() == c10::IntArrayRef(expected), where, "expected values of shape (",
                   join(expected), ") for these shapes, got (", join(values.sizes()), ")");
  structure.ragged = std::make_shared<detail::Ragged>(static_cast<std::int64_t>(shapes.size()), ragged.size(), sizes);
  structure.ragged_dims = ragged;
  return NestedTensor(detail::wrap(values, std::move(structure)));
}

NestedTensor NestedTensor::from_tensor_mask(const at::Tensor& padded, const at::Tensor& mask,
                                            const NestedTensorOptions& options) {
  constexpr const char* where = "nested_tensor.from_tensor_mask";
  detail::register_operators();
  const std::int64_t rank = mask.dim() - 1;
  bool fits = rank >= 1 && mask.dim() <= padded.dim();
  for (std::int64_t dim = 0; fits && dim < mask.dim(); ++dim) {
    fits = mask.size(dim) == padded.size(dim);
  }
  check<DataError>(fits && mask.scalar_type() == at::kBool, where,
                   "expected a boolean mask of the first dimensions of a tensor of shape (", join(padded.sizes()),
                   "), got one of shape (", join(mask.sizes()), ")");
  Structure structure = structure_of(options);
  const at::Tensor valid = options.mask_value ? mask.logical_not() : mask;
  const at::Tensor by_element = options.batch_first ? valid : valid.transpose(0, 1);
  const std::int64_t batch = by_element.size(0);
  // The size along a dimension is the number of places that have a valid value somewhere.
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(batch * rank));
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    std::vector<std::int64_t> others;
    for (std::int64_t other = 1; other <= rank; ++other) {
      if (other != dim + 1) {
        others.push_back(other);
      }
    }
    const at::Tensor count = (others.empty() ? by_element : by_element.amax(others)).sum(1).cpu();
    for (std::int64_t element = 0; element < batch; ++element) {
      sizes[static_cast<std::size_t>(element * rank + dim)] = count.const_data_ptr<std::int64_t>()[element];
    }
  }
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    structure.ragged_dims.push_back(dim);
  }
  structure.ragged = std::make_shared<detail::Ragged>(batch, static_cast<std::size_t>(rank), std::move(sizes));
  bool starts = true;
  c10::DimVector longest(mask.sizes().begin(), mask.sizes().end());
  longest.erase(longest.begin() + (options.batch_first ? 0 : 1));
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    const std::int64_t own = structure.ragged->longest()[static_cast<std::size_t>(dim)];
    longest[static_cast<std::size_t>(dim)] = own;
  }
  at::Tensor cut = padded, cut_valid = valid;
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    const std::int64_t at = structure.tensor_dim(dim, rank);
    cut = cut.narrow(at, 0, longest[static_cast<std::size_t>(dim)]);
    cut_valid = cut_valid.narrow(at, 0, longest[static_cast<std::size_t>(dim)]);
  }
  const at::Tensor rows = at::ones({structure.ragged->rows()}, valid.options());
  starts = detail::pad(rows, structure, 0).equal(cut_valid) && valid.sum().item<std::int64_t>() == rows.size(0);
  check<DataError>(starts, where,
                   "expected a mask whose valid positions come first in every element, got another one of shape (",
                   join(mask.sizes()), "); sort them to the front, or set mask_value if true is padding");
  return NestedTensor(detail::wrap(detail::pack(cut, structure), structure));
}

NestedTensor NestedTensor::nested_like(const at::Tensor& tensor) const {
  const NestedTensorImpl& own = impl_of(*this);
  if (is_nested(tensor)) {
    return NestedTensor(tensor);
  }
  check<DataError>(tensor.sizes() == sizes(), "nested_tensor.nested_like", "expected a tensor of shape (",
                   join(sizes()), "), got (", join(tensor.sizes()), ")");
  return NestedTensor(detail::wrap(detail::pack(tensor, own.structure()), own.structure()));
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

std::string NestedTensor::to_string() const {
  std::ostringstream out;
  out << *this;
  return out.str();
}

std::ostream& operator<<(std::ostream& out, const NestedTensor& tensor) {
  out << "NestedTensor([";
  const char* separator = "\n";
  for (const at::Tensor& element : tensor.elements()) {
    out << separator << element;
    separator = ",\n";
  }
  return out << "\n])";
}

}  // namespace danling::inline v0
