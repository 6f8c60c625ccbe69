// Conversion between packed values and separate elements.
#include <algorithm>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include <tensors/nested/impl.hpp>

namespace danling::inline v0::detail {
namespace {

/// Returns the dimensions of an element in the order of the values: ragged, then static.
c10::DimVector order_of_values(const c10::DimVector& ragged_dims, std::int64_t rank) {
  c10::DimVector order(ragged_dims);
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    if (std::find(ragged_dims.begin(), ragged_dims.end(), dim) == ragged_dims.end()) {
      order.push_back(dim);
    }
  }
  return order;
}

bool is_identity(const c10::DimVector& order) { return std::is_sorted(order.begin(), order.end()); }

}  // namespace

at::Tensor element_of(const at::Tensor& values, const Structure& structure, std::int64_t element) {
  const Ragged& ragged = *structure.ragged;
  const at::Tensor rows = values.narrow(0, ragged.begin(element), ragged.rows_of(element));
  const auto own = ragged.sizes(element);
  c10::DimVector sizes(own.begin(), own.end());
  sizes.insert(sizes.end(), values.sizes().begin() + 1, values.sizes().end());
  const at::Tensor shaped = ragged.rank() == 1 ? rows : rows.view(sizes);
  const c10::DimVector order = order_of_values(structure.ragged_dims, structure.element_rank(values.dim()));
  if (is_identity(order)) {
    return shaped;
  }
  c10::DimVector inverse(order.size());
  for (std::size_t at = 0; at < order.size(); ++at) {
    inverse[static_cast<std::size_t>(order[at])] = static_cast<std::int64_t>(at);
  }
  return shaped.permute(inverse);
}

at::Tensor element_of(const at::Tensor& tensor, std::int64_t element) {
  return element_of(values_of(tensor), nested(tensor)->structure(), element);
}

std::vector<at::Tensor> elements_of(const at::Tensor& tensor) {
  const at::Tensor values = values_of(tensor);
  const Structure& structure = nested(tensor)->structure();
  std::vector<at::Tensor> out;
  for (std::int64_t element = 0; element < structure.batch(); ++element) {
    out.push_back(element_of(values, structure, element));
  }
  return out;
}

c10::DimVector find_ragged_dims(const std::vector<at::Tensor>& elements) {
  c10::DimVector out;
  const std::int64_t rank = elements.empty() ? 1 : elements.front().dim();
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    const bool differs = std::any_of(elements.begin(), elements.end(), [&](const at::Tensor& element) {
      return element.size(dim) != elements.front().size(dim);
    });
    if (differs) {
      out.push_back(dim);
    }
  }
  if (out.empty() && rank > 0) {
    out.push_back(0);
  }
  return out;
}

at::Tensor nest(const std::vector<at::Tensor>& elements, const Structure& like,
                std::optional<c10::DimVector> ragged_dims) {
  const bool is_given = ragged_dims.has_value();
  const c10::DimVector ragged = ragged_dims ? std::move(*ragged_dims) : find_ragged_dims(elements);
  std::vector<std::int64_t> sizes;
  std::vector<at::Tensor> rows;
  for (const at::Tensor& element : elements) {
    c10::DimVector shape = {1};
    for (const std::int64_t dim : ragged) {
      sizes.push_back(element.size(dim));
      shape[0] *= element.size(dim);
    }
    const c10::DimVector order = order_of_values(ragged, element.dim());
    for (std::size_t at = ragged.size(); at < order.size(); ++at) {
      shape.push_back(element.size(order[at]));
    }
    rows.push_back((is_identity(order) ? element : element.permute(order)).reshape(shape));
  }
  Structure structure = like;
  structure.ragged =
      std::make_shared<Ragged>(static_cast<std::int64_t>(elements.size()), ragged.size(), std::move(sizes));
  if (!is_given) {
    const bool differ = std::any_of(elements.begin(), elements.end(), [&](const at::Tensor& element) {
      return element.sizes() != elements.front().sizes();
    });
    structure.guessed = !differ && !elements.empty() && elements.front().dim() > 1;
  } else if (like.ragged_dims != ragged) {
    structure.guessed = false;
  }
  structure.ragged_dims = ragged;
  return wrap(rows.empty() ? at::empty({0}) : at::cat(rows), std::move(structure));
}

}  // namespace danling::inline v0::detail
