// NestedTensor::set and index_put_: write to elements, also with new lengths.
#include <algorithm>

#include <ATen/TensorIndexing.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/scalar_tensor.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <tensors/nested/along.hpp>
#include <tensors/nested/impl.hpp>
#include <tensors/nested/rows.hpp>
#include <tensors/nested/shapes.hpp>

namespace danling::inline v0 {
namespace {

constexpr const char* set_name = "nested_tensor.set";

std::int64_t checked_element(const NestedTensor& tensor, std::int64_t index) {
  const std::int64_t batch = tensor.batch_size();
  check<DataError>(index >= -batch && index < batch, set_name, "expected an index from ", -batch, " to ", batch - 1,
                   ", got ", index, " in a batch of ", detail::text_of_shapes(*detail::nested(tensor)));
  return index < 0 ? index + batch : index;
}

/// Replaces all elements. Ragged dimensions stay ragged, even if all sizes are now equal.
void replace_elements(const NestedTensor& tensor, const std::vector<at::Tensor>& elements) {
  detail::NestedTensorImpl& impl = *detail::nested(tensor);
  c10::DimVector ragged_dims = impl.structure().ragged_dims;
  for (std::int64_t dim = 0; dim < impl.element_rank(); ++dim) {
    const bool differs = std::any_of(elements.begin(), elements.end(), [&](const at::Tensor& element) {
      return element.size(dim) != elements.front().size(dim);
    });
    if (differs && !impl.structure().is_ragged(dim)) {
      ragged_dims.push_back(dim);
    }
  }
  std::sort(ragged_dims.begin(), ragged_dims.end());
  const at::Tensor made = detail::nest(elements, impl.structure(), ragged_dims);
  impl.set_structure(detail::nested(made)->values(), detail::nested(made)->structure());
  detail::replace_values(tensor, impl.values());
}

std::vector<std::int64_t> chosen_elements_of(const NestedTensor& tensor, const at::indexing::TensorIndex& index) {
  const std::int64_t batch = tensor.batch_size();
  std::vector<std::int64_t> out;
  if (index.is_integer()) {
    return {checked_element(tensor, index.integer().expect_int())};
  }
  if (index.is_slice()) {
    const std::int64_t step = index.slice().step().expect_int();
    const auto span =
        detail::span_of(batch, index.slice().start().expect_int(), index.slice().stop().expect_int(), step);
    for (std::int64_t at = 0; at < span.count; ++at) {
      out.push_back(span.begin + at * step);
    }
    return out;
  }
  check<DataError>(index.is_tensor() && index.tensor().dim() == 1, set_name,
                   "expected a number, a slice, or a list or mask of elements first, got another index");
  const bool is_mask = index.tensor().scalar_type() == at::kBool;
  const auto numbers = detail::read_index(index.tensor());
  check<DataError>(!is_mask || static_cast<std::int64_t>(numbers.size()) == batch, set_name,
                   "expected a mask of the batch, ", batch, ", got one of ", numbers.size());
  for (std::size_t at = 0; at < numbers.size(); ++at) {
    if (!is_mask) {
      out.push_back(checked_element(tensor, numbers[at]));
    } else if (numbers[at] != 0) {
      out.push_back(static_cast<std::int64_t>(at));
    }
  }
  return out;
}

using at::indexing::TensorIndex;

bool is_whole(const TensorIndex& index) {
  return index.is_slice() && index.slice().start().expect_int() == 0 && index.slice().step().expect_int() == 1 &&
         index.slice().stop().expect_int() == at::indexing::INDEX_MAX;
}

/// Returns one index per dimension of the tensor; nothing if `None` or a boolean adds dimensions.
std::vector<TensorIndex> index_of_each_dim(const at::Tensor& tensor, at::ArrayRef<TensorIndex> indices) {
  std::vector<TensorIndex> out;
  std::size_t named = 0;
  for (const TensorIndex& index : indices) {
    if (index.is_none() || index.is_boolean()) {
      return {};
    }
    const bool is_wide_mask =
        index.is_tensor() && index.tensor().dim() > 1 && index.tensor().scalar_type() == at::kBool;
    named += index.is_ellipsis() ? 0 : is_wide_mask ? static_cast<std::size_t>(index.tensor().dim()) : 1;
  }
  const auto rank = static_cast<std::size_t>(tensor.dim());
  for (const TensorIndex& index : indices) {
    for (std::size_t at = named; index.is_ellipsis() && at < rank; ++at) {
      out.emplace_back(at::indexing::Slice());
    }
    if (!index.is_ellipsis()) {
      out.push_back(index);
    }
  }
  while (out.size() < rank) {
    out.emplace_back(at::indexing::Slice());
  }
  return out;
}

}  // namespace

at::Tensor& NestedTensor::index_put_(at::ArrayRef<TensorIndex> indices, const at::Tensor& value) {
  const detail::NestedTensorImpl& impl = *detail::nested(*this);
  const detail::Structure& structure = impl.structure();
  const std::int64_t rank = impl.element_rank();
  const auto batch_dim = static_cast<std::size_t>(structure.batch_dim(rank));
  const std::vector<TensorIndex> own = index_of_each_dim(*this, indices);
  bool chooses_position = false;
  for (const std::int64_t dim : structure.ragged_dims) {
    const auto at = static_cast<std::size_t>(structure.tensor_dim(dim, rank));
    chooses_position =
        chooses_position || (own.size() == static_cast<std::size_t>(this->dim()) && own[at].is_integer());
  }
  if (!chooses_position || own[batch_dim].is_integer()) {  // otherwise a view of one element
    return at::Tensor::index_put_(indices, value);
  }
  c10::List<std::optional<at::Tensor>> tensors;
  for (std::size_t at = 0; at < own.size(); ++at) {
    const bool is_batch = at == batch_dim;
    check<DataError>(
        own[at].is_integer() || is_whole(own[at]) || (is_batch && own[at].is_slice()), "nested_tensor.index_put_",
        "expected integers, slices of the batch and whole dimensions together with an integer along a ragged "
        "dimension, got another index at ",
        at, " for elements ", detail::text_of_shapes(impl), "; set() writes to each element");
    if (own[at].is_integer()) {
      tensors.push_back(at::scalar_tensor(own[at].integer().expect_int(), at::kLong));
    } else if (is_batch) {
      tensors.push_back(detail::row_index(chosen_elements_of(*this, own[at]), at::kCPU));
    } else {
      tensors.push_back(std::nullopt);
    }
  }
  return at::Tensor::index_put_(tensors, value.to(impl.values().options().requires_grad(false)));
}

at::Tensor& NestedTensor::index_put_(std::initializer_list<TensorIndex> indices, const at::Tensor& value) {
  return index_put_(at::ArrayRef<TensorIndex>(indices), value);
}

at::Tensor& NestedTensor::index_put_(std::initializer_list<TensorIndex> indices, const at::Scalar& value) {
  return index_put_(at::ArrayRef<TensorIndex>(indices), value);
}

at::Tensor& NestedTensor::index_put_(at::ArrayRef<TensorIndex> indices, const at::Scalar& value) {
  return index_put_(indices, at::scalar_tensor(value, detail::nested(*this)->values().options().requires_grad(false)));
}

void NestedTensor::set(std::int64_t element, const at::Tensor& value) {
  detail::expect_changeable(*this, "set");
  const std::int64_t at = checked_element(*this, element);
  at::Tensor own = value;
  if (is_nested(value)) {
    const NestedTensor given(value);
    check<DataError>(given.batch_size() == 1, set_name, "expected one element, got ", given.batch_size());
    own = given[0];
  }
  const detail::NestedTensorImpl& impl = *detail::nested(*this);
  check<DataError>(own.dim() == impl.element_rank(), set_name, "expected an element of ", impl.element_rank(),
                   " dimensions, got one of shape (", join(own.sizes()), ")");
  own = own.to(impl.values().options());
  const at::Tensor here = (*this)[at];
  if (own.sizes() == here.sizes()) {
    here.copy_(own);
    detail::replace_values(*this, impl.values());
    return;
  }
  std::vector<at::Tensor> all = elements();
  all[static_cast<std::size_t>(at)] = own;
  replace_elements(*this, all);
}

void NestedTensor::set(std::initializer_list<at::indexing::TensorIndex> index, const at::Tensor& value) {
  detail::expect_changeable(*this, "set");
  check<DataError>(index.size() > 0, set_name, "expected an index, got none");
  const auto chosen = chosen_elements_of(*this, *index.begin());
  std::vector<at::Tensor> values(chosen.size(), value);
  if (is_nested(value)) {
    values = NestedTensor(value).elements();
    check<DataError>(values.size() == chosen.size(), set_name, "expected ", chosen.size(), " elements, got ",
                     values.size());
  }
  if (index.size() == 1 && is_nested(value)) {
    std::vector<at::Tensor> all = elements();
    for (std::size_t at = 0; at < chosen.size(); ++at) {
      all[static_cast<std::size_t>(chosen[at])] = values[at].to(detail::nested(*this)->values().options());
    }
    replace_elements(*this, all);
    return;
  }
  std::vector<at::indexing::TensorIndex> rest(index.begin() + 1, index.end());
  if (rest.empty()) {
    rest.emplace_back(at::indexing::Ellipsis);
  }
  for (std::size_t at = 0; at < chosen.size(); ++at) {
    (*this)[chosen[at]].index_put_(rest, values[at]);
  }
  detail::replace_values(*this, detail::nested(*this)->values());
}

}  // namespace danling::inline v0
