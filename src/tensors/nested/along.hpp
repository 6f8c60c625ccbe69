// Selection of elements from a batch, and of positions along a ragged dimension.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <tensors/nested/impl.hpp>

namespace danling::inline v0::detail {

/// Returns the elements with these indices: a view if they are adjacent.
at::Tensor take_elements(const at::Tensor& tensor, const std::vector<std::int64_t>& elements);

/// Maps each new position in an element to the old one; -1 for a position without an old one.
using Positions = std::function<std::int64_t(std::int64_t element, std::int64_t position)>;
/// Gathers `counts` positions of each element along a ragged dimension, in one gather of rows. Later in-place writes to
/// the result also change `tensor`, as with a view, unless `fill` is set for positions without an old one.
at::Tensor take_positions(const at::Tensor& tensor, std::int64_t element_dim, const std::vector<std::int64_t>& counts,
                          const Positions& positions, std::optional<double> fill = std::nullopt);

/// Copies the positions: later writes do not change `tensor`.
at::Tensor copy_positions(const at::Tensor& tensor, std::int64_t element_dim, const std::vector<std::int64_t>& counts,
                          const Positions& positions);

/// Makes in-place writes to `out` change `tensor` too. `out` is a copy of the tensor's values in the order of
/// `arrange`, for operators that return a view in LibTorch.
at::Tensor write_through(at::Tensor out, const at::Tensor& tensor,
                         std::function<at::Tensor(const at::Tensor&)> arrange);
/// Copies `out` so that writes change no other tensor.
at::Tensor own_copy(const at::Tensor& out, const at::Tensor& tensor);

/// Returns the size of each element along a ragged dimension.
std::vector<std::int64_t> sizes_along(const Structure& structure, std::int64_t element_dim);

/// A range of positions. Negative ends count from the size; ends are clamped to it, as in at::slice.
struct Span {
  std::int64_t begin, count;
};
Span span_of(std::int64_t size, std::optional<std::int64_t> start, std::optional<std::int64_t> end, std::int64_t step);

}  // namespace danling::inline v0::detail
