// Reshaping if values cannot stay packed: per element, or of an empty batch.
#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include <tensors/nested/operators.hpp>
#include <tensors/nested/views.hpp>

namespace danling::inline v0::detail {

namespace {

using ShapeSizes = std::vector<std::int64_t>;

std::int64_t product_of_sizes(const ShapeSizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

at::Tensor reshape_empty(const at::Tensor& tensor, const ShapeSizes& to) {
  const NestedTensorImpl& impl = *nested(tensor);
  Structure structure = impl.structure();
  const auto rank = static_cast<std::int64_t>(to.size()) - 1;
  if (rank != impl.element_rank() || rank == 0) {
    structure.ragged_dims = {0};
  }
  structure.ragged_dims.resize(rank == 0 ? 0 : structure.ragged_dims.size());
  structure.ragged = std::make_shared<Ragged>(0, structure.ragged_dims.size(), ShapeSizes());
  ShapeSizes sizes = {0};
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    const std::int64_t size = to[static_cast<std::size_t>(structure.tensor_dim(dim, rank))];
    if (!structure.is_ragged(dim)) {
      sizes.push_back(std::max<std::int64_t>(size, 0));
    }
  }
  return wrap(values_of(tensor).reshape(sizes), std::move(structure));
}

namespace {

/// Converts the target sizes to one element: leading and trailing dimensions of the padded tensor keep their sizes.
ShapeSizes own_sizes(const ShapeSizes& to, const ShapeSizes& padded, const at::Tensor& element) {
  ShapeSizes out = to;
  const std::size_t rank = padded.size(), most = std::min(rank, to.size());
  std::size_t front = 0, back = 0;
  for (; front < most && to[front] == padded[front]; ++front) {
    out[front] = element.size(static_cast<std::int64_t>(front));
  }
  for (; back < most - front && to[to.size() - 1 - back] == padded[rank - 1 - back]; ++back) {
    out[to.size() - 1 - back] = element.size(static_cast<std::int64_t>(rank - 1 - back));
  }
  return out;
}

/// Replaces -1 with a size.
void infer_size(ShapeSizes& sizes, std::int64_t numel) {
  std::int64_t known = 1;
  for (const std::int64_t size : sizes) {
    known *= size == -1 ? 1 : size;
  }
  const auto unknown = std::find(sizes.begin(), sizes.end(), -1);
  if (unknown != sizes.end() && known != 0) {
    *unknown = numel / known;
  }
}

}  // namespace

std::optional<at::Tensor> reshape_elements(Call& call, const at::Tensor& tensor, const ShapeSizes& to) {
  const Structure& structure = nested(tensor)->structure();
  ShapeSizes padded = tensor.sizes().vec();
  padded.erase(padded.begin() + structure.batch_dim(nested(tensor)->element_rank()));
  std::vector<ShapeSizes> shapes;
  const std::vector<at::Tensor> elements = elements_of(tensor);
  for (const at::Tensor& element : elements) {
    ShapeSizes sizes = own_sizes(to, padded, element);
    infer_size(sizes, element.numel());
    if (product_of_sizes(sizes) != element.numel()) {
      sizes = to;
      infer_size(sizes, element.numel());
    }
    if (product_of_sizes(sizes) != element.numel()) {
      return std::nullopt;
    }
    shapes.push_back(std::move(sizes));
  }
  if (tensor.numel() != 0) {
    expect_fallback_allowed(call);
  }
  std::vector<at::Tensor> out;
  for (std::size_t at = 0; at < shapes.size(); ++at) {
    out.push_back(elements[at].reshape(shapes[at]));
  }
  return nest(out, structure);
}

at::Tensor flatten_elements(Call& call, const at::Tensor& tensor, std::int64_t first, std::int64_t last,
                            const c10::DimVector& ragged_dims) {
  const NestedTensorImpl& impl = *nested(tensor);
  Structure structure = impl.structure();
  if (structure.batch() == 0) {
    auto values = impl.values().sizes().vec();
    values.resize(1);
    for (std::int64_t dim = 0; dim < impl.element_rank(); ++dim) {
      if ((dim < first || dim > last) && !structure.is_ragged(dim)) {
        values.push_back(impl.values().size(structure.values_dim(dim)));
      }
    }
    structure.ragged_dims = ragged_dims;
    structure.ragged = std::make_shared<Ragged>(0, ragged_dims.size(), ShapeSizes());
    return wrap(values_of(tensor).reshape(values), std::move(structure));
  }
  if (tensor.numel() != 0) {
    expect_fallback_allowed(call);
  }
  std::vector<at::Tensor> out;
  for (const at::Tensor& element : elements_of(tensor)) {
    out.push_back(element.flatten(first, last));
  }
  return nest(out, structure, ragged_dims);
}

}  // namespace danling::inline v0::detail
