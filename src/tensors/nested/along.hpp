// Some of the elements of a batch, and some positions along a ragged dimension.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tensors/nested/impl.hpp"

namespace danling::inline v0::detail {

/// The elements of these numbers: a view where they are neighbours.
at::Tensor take_elements(const at::Tensor& tensor, const std::vector<std::int64_t>& elements);

/// The old position of each new one, in an element; -1 for one that is new.
using Positions = std::function<std::int64_t(std::int64_t element, std::int64_t position)>;
/// Positions along a ragged dimension, `counts` of them in each element, in one gather of rows. What is written to the
/// result later in place is written to the tensor too, as to a view, unless `fill` stands at new positions.
at::Tensor take_positions(const at::Tensor& tensor, std::int64_t element_dim, const std::vector<std::int64_t>& counts,
                          const Positions& positions, std::optional<double> fill = std::nullopt);

/// As a copy: nothing is written to the tensor later.
at::Tensor copy_positions(const at::Tensor& tensor, std::int64_t element_dim, const std::vector<std::int64_t>& counts,
                          const Positions& positions);

/// `out`: a copy of the tensor's values in another order, as `arrange` makes it, where LibTorch has a view. Values that
/// are written to it in place later are written to the tensor too.
at::Tensor write_through(at::Tensor out, const at::Tensor& tensor,
                         std::function<at::Tensor(const at::Tensor&)> arrange);
/// With values of its own: nothing is written to any other tensor.
at::Tensor own_copy(const at::Tensor& out, const at::Tensor& tensor);

/// Of each element along a ragged dimension.
std::vector<std::int64_t> sizes_along(const Structure& structure, std::int64_t element_dim);

/// A range of positions, of negative ends counted from the size and cut off at it, as at::slice does.
struct Span {
  std::int64_t begin, count;
};
Span span_of(std::int64_t size, std::optional<std::int64_t> start, std::optional<std::int64_t> end, std::int64_t step);

}  // namespace danling::inline v0::detail
