// Permutation and selection of packed rows.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// Returns row indices on the device.
at::Tensor row_index(const std::vector<std::int64_t>& rows, at::Device device);
/// Gathers rows: `rows` lists the old row for each new one. Rows may be omitted or repeated. Differentiable.
at::Tensor take_rows(const at::Tensor& values, const std::vector<std::int64_t>& rows);

/// Permutes all rows of (rows, ...) by a gather; the gradient is a gather too, without accumulation.
at::Tensor permute_rows(const at::Tensor& values, const std::vector<std::int64_t>& rows);

}  // namespace danling::inline v0::detail
