// Rows of a parameter over the ranks of a group: ceil(rows / ranks) each, as in PyTorch's FSDP2.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

struct RowRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

inline RowRange row_range(std::int64_t rows, std::int64_t rank, std::int64_t ranks) {
  const std::int64_t each = (rows + ranks - 1) / ranks;
  const std::int64_t begin = std::min(rank * each, rows);
  return {begin, std::min(each, rows - begin)};
}

/// A parameter of no dimension is one row.
inline std::int64_t rows_of(const at::Tensor& parameter) { return parameter.dim() == 0 ? 1 : parameter.size(0); }

inline std::int64_t row_size(const at::Tensor& parameter) {
  const std::int64_t rows = rows_of(parameter);
  return rows == 0 ? 0 : parameter.numel() / rows;
}

/// Rows of a whole tensor: a view.
inline at::Tensor take_rows(const at::Tensor& whole, const RowRange& range) {
  return (whole.dim() == 0 ? whole.view({1}) : whole).narrow(0, range.begin, range.count);
}

}  // namespace danling::inline v0::detail
