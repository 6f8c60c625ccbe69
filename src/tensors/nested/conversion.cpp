// Construction of nested tensors from packed and from padded values.
#include <algorithm>
#include <functional>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <tensors/nested/along.hpp>
#include <tensors/nested/construction.hpp>
#include <tensors/nested/operators.hpp>

namespace danling::inline v0 {
namespace {

using detail::Structure;
using detail::structure_of;
using detail::with_options;

/// For an element without valid positions, sets the sizes on which all other elements agree, if another size is 0.
void complete_empty_elements(std::vector<std::int64_t>& sizes, std::size_t rank) {
  std::vector<std::int64_t> agreed(rank, -1);
  for (std::size_t at = 0; at < sizes.size(); at += rank) {
    for (std::size_t dim = 0; sizes[at] != 0 && dim < rank; ++dim) {
      agreed[dim] = agreed[dim] == -1 || agreed[dim] == sizes[at + dim] ? sizes[at + dim] : 0;
    }
  }
  const bool some_differ = std::find(agreed.begin(), agreed.end(), 0) != agreed.end();
  for (std::size_t at = 0; some_differ && at < sizes.size(); at += rank) {
    if (sizes[at] == 0) {
      std::copy(agreed.begin(), agreed.end(), sizes.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
}

/// Returns the number of valid positions along each dimension: `rank` numbers per element.
std::vector<std::int64_t> sizes_of_mask(const at::Tensor& by_element, std::int64_t rank) {
  const std::int64_t batch = by_element.size(0);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(batch * rank));
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    at::Tensor somewhere = by_element;
    for (std::int64_t other = rank; other >= 1; --other) {
      somewhere = other != dim + 1 ? somewhere.any(other) : somewhere;
    }
    const at::Tensor count = somewhere.sum(1).cpu();
    for (std::int64_t element = 0; element < batch; ++element) {
      sizes[static_cast<std::size_t>(element * rank + dim)] = count.const_data_ptr<std::int64_t>()[element];
    }
  }
  complete_empty_elements(sizes, static_cast<std::size_t>(rank));
  return sizes;
}

/// Returns the elements that a mask of the batch selects.
NestedTensor chosen_elements(const at::Tensor& tensor, const at::Tensor& valid, const NestedTensorOptions& options) {
  std::vector<at::Tensor> out;
  const at::Tensor host = valid.cpu().contiguous();
  for (std::int64_t element = 0; element < host.size(0); ++element) {
    if (host.const_data_ptr<bool>()[element]) {
      out.push_back(tensor.select(0, element));
    }
  }
  NestedTensorOptions own = options;
  own.dtype = options.dtype.value_or(tensor.scalar_type());
  return NestedTensor(out, own);
}

}  // namespace

namespace detail {

Structure structure_for(const std::vector<std::vector<std::int64_t>>& shapes, const NestedTensorOptions& options,
                        const char* where, std::size_t empty_rank) {
  Structure out = structure_of(options);
  const std::size_t rank = shapes.empty() ? empty_rank : shapes.front().size();
  c10::DimVector differ;
  for (std::size_t dim = 0; dim < rank; ++dim) {
    for (const auto& shape : shapes) {
      check<DataError>(shape.size() == rank, where, "expected shapes of one rank, got (", join(shapes.front()),
                       ") and (", join(shape), ")");
      if (shape[dim] != shapes.front()[dim]) {
        differ.push_back(static_cast<std::int64_t>(dim));
        break;
      }
    }
  }
  if (!options.ragged_dims) {
    out.guessed = differ.empty() && rank > 1;
    out.ragged_dims = differ.empty() && rank > 0 ? c10::DimVector{0} : differ;
    return out;
  }
  const auto& asked = *options.ragged_dims;
  const bool ascending = std::is_sorted(asked.begin(), asked.end(), std::less_equal<std::int64_t>());
  // An empty list is valid: the ragged dimensions may have been squeezed.
  const bool fits =
      ascending && (asked.empty() || (asked.front() >= 0 && asked.back() < static_cast<std::int64_t>(rank)));
  check<DataError>(fits, where, "expected ragged_dims from 0 to ", static_cast<std::int64_t>(rank) - 1,
                   ", ascending, got (", join(asked), ")");
  check<DataError>(std::includes(asked.begin(), asked.end(), differ.begin(), differ.end()), where,
                   "expected sizes that differ only along ragged_dims (", join(asked),
                   "), got some that differ along (", join(differ), ")");
  out.ragged_dims = {asked.begin(), asked.end()};
  return out;
}

}  // namespace detail

NestedTensor NestedTensor::from_concatenated(const at::Tensor& values,
                                             const std::vector<std::vector<std::int64_t>>& shapes,
                                             const NestedTensorOptions& options) {
  constexpr const char* where = "nested_tensor.from_concatenated";
  detail::register_operators();
  const std::size_t rank = shapes.empty() ? 0 : shapes.front().size();
  const std::size_t num_ragged = options.ragged_dims ? options.ragged_dims->size() : 1;
  const std::size_t empty_rank = num_ragged + static_cast<std::size_t>(std::max<std::int64_t>(values.dim(), 1)) - 1;
  Structure structure = detail::structure_for(shapes, options, where, empty_rank);
  const c10::DimVector& ragged = structure.ragged_dims;
  std::vector<std::int64_t> sizes, expected = {0};
  for (const auto& shape : shapes) {
    std::int64_t rows = 1;
    bool overflows = false;  // shapes may come from a damaged file
    for (const std::int64_t dim : ragged) {
      sizes.push_back(shape[static_cast<std::size_t>(dim)]);
      check<DataError>(sizes.back() >= 0, where, "expected sizes of 0 or above, got (", join(shape), ")");
      overflows = __builtin_mul_overflow(rows, sizes.back(), &rows) || overflows;
    }
    overflows = __builtin_add_overflow(expected[0], rows, &expected[0]) || overflows;
    check<DataError>(!overflows, where, "expected fewer than 2^63 rows, got (", join(shape), ")");
  }
  for (std::size_t dim = 0; dim < rank && !shapes.empty(); ++dim) {
    if (std::find(ragged.begin(), ragged.end(), static_cast<std::int64_t>(dim)) == ragged.end()) {
      expected.push_back(shapes.front()[dim]);
    }
  }
  if (shapes.empty() && values.dim() > 0) {
    expected.insert(expected.end(), values.sizes().begin() + 1, values.sizes().end());
  }
  check<DataError>(values.sizes() == c10::IntArrayRef(expected), where, "expected values of shape (", join(expected),
                   ") for these shapes, got (", join(values.sizes()), ")");
  structure.ragged = std::make_shared<detail::Ragged>(static_cast<std::int64_t>(shapes.size()), ragged.size(), sizes);
  return NestedTensor(with_options(detail::wrap(values, std::move(structure)), options));
}

NestedTensor NestedTensor::from_tensor_mask(const at::Tensor& padded, const at::Tensor& mask,
                                            const NestedTensorOptions& options) {
  constexpr const char* where = "nested_tensor.from_tensor_mask";
  detail::register_operators();
  const std::int64_t rank = mask.dim() - 1;
  bool fits = rank >= 0 && mask.dim() <= padded.dim();
  for (std::int64_t dim = 0; fits && dim < mask.dim(); ++dim) {
    fits = mask.size(dim) == padded.size(dim);
  }
  check<DataError>(fits, where, "expected a mask of the first dimensions of a tensor of shape (", join(padded.sizes()),
                   "), got one of shape (", join(mask.sizes()), ")");
  // A one-dimensional integer tensor contains lengths, a float tensor additive scores: neither is a mask.
  check<DataError>(
      mask.scalar_type() == at::kBool || (rank > 0 && at::isIntegralType(mask.scalar_type(), /*includeBool=*/false)),
      where, "expected a boolean mask, got ", c10::toString(mask.scalar_type()), " of shape (", join(mask.sizes()),
      "); of lengths: torch::arange(longest) < lengths.unsqueeze(1)");
  const at::Tensor flags = mask.to(at::kBool), valid = options.mask_value ? flags.logical_not() : flags;
  if (rank == 0) {
    return chosen_elements(padded, valid, options);
  }
  const auto sizes = sizes_of_mask(options.batch_first ? valid : valid.transpose(0, 1), rank);
  const std::int64_t batch = valid.size(options.batch_first ? 0 : 1);
  // Treats all dimensions of the mask as ragged first, to compare the mask with the mask of these sizes.
  Structure whole = structure_of(options);
  whole.ragged = std::make_shared<detail::Ragged>(batch, static_cast<std::size_t>(rank), sizes);
  at::Tensor cut = padded, cut_valid = valid;
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    whole.ragged_dims.push_back(dim);
    const std::int64_t at = whole.tensor_dim(dim, rank),
                       longest = whole.ragged->longest()[static_cast<std::size_t>(dim)];
    cut = cut.narrow(at, 0, longest);
    cut_valid = cut_valid.narrow(at, 0, longest);
  }
  const at::Tensor rows = at::ones({whole.ragged->rows()}, valid.options());
  check<DataError>(detail::pad(rows, whole, 0).equal(cut_valid) && valid.sum().item<std::int64_t>() == rows.size(0),
                   where,
                   "expected a mask whose valid positions come first in every element, got one with gaps, of shape (",
                   join(mask.sizes()), "); sort them to the front, or set mask_value if true is padding");
  Structure structure = structure_of(options);
  std::vector<std::int64_t> ragged_sizes;
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    for (std::int64_t element = 1; element < batch; ++element) {
      if (sizes[static_cast<std::size_t>(element * rank + dim)] != sizes[static_cast<std::size_t>(dim)]) {
        structure.ragged_dims.push_back(dim);
        break;
      }
    }
  }
  if (structure.ragged_dims.empty()) {
    structure.ragged_dims = {0};
  }
  for (std::int64_t element = 0; element < batch; ++element) {
    for (const std::int64_t dim : structure.ragged_dims) {
      ragged_sizes.push_back(sizes[static_cast<std::size_t>(element * rank + dim)]);
    }
  }
  structure.ragged = std::make_shared<detail::Ragged>(batch, structure.ragged_dims.size(), std::move(ragged_sizes));
  return NestedTensor(with_options(detail::wrap(detail::pack(cut, structure), structure), options));
}

NestedTensor NestedTensor::nested_like(const at::Tensor& tensor, bool strict) const {
  constexpr const char* where = "nested_tensor.nested_like";
  if (is_nested(tensor)) {
    return NestedTensor(tensor.clone());
  }
  const Structure& own = detail::nested(*this)->structure();
  const std::int64_t rank = detail::nested(*this)->element_rank(), batch_dim = own.batch_dim(rank);
  check<DataError>(!strict || tensor.sizes() == sizes(), where, "expected a tensor of shape (", join(sizes()),
                   "), got (", join(tensor.sizes()), ")");
  check<DataError>(tensor.dim() == dim() && tensor.size(batch_dim) == own.batch(), where, "expected a tensor of ",
                   dim(), " dimensions and a batch of ", own.batch(), ", got shape (", join(tensor.sizes()), ")");
  at::Tensor fitted = tensor.device() == device() ? tensor : tensor.to(device());
  bool covers = true;
  for (std::int64_t at = 0; at < dim(); ++at) {
    covers = covers && tensor.size(at) >= size(at);
  }
  if (covers) {
    for (std::int64_t at = 0; at < dim(); ++at) {
      fitted = fitted.narrow(at, 0, size(at));
    }
    return NestedTensor(detail::wrap(detail::pack(fitted, own), own));
  }
  std::vector<at::Tensor> elements;
  const auto shapes_here = shapes();
  for (std::int64_t element = 0; element < own.batch(); ++element) {
    at::Tensor part = fitted.select(batch_dim, element);
    for (std::int64_t at = 0; at < rank; ++at) {
      part = part.slice(at, 0, shapes_here[static_cast<std::size_t>(element)][static_cast<std::size_t>(at)]);
    }
    elements.push_back(part);
  }
  return NestedTensor(detail::nest(elements, own, own.ragged_dims));
}

}  // namespace danling::inline v0
