// Permutation and selection of packed rows.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// Returns row indices on the device.
at::Tensor row_index(const std::vector<std::int64_t>& rows, at::Device device);
/// Gathers rows: `rows` lists the old row for each new one. Rows may be omitted or repeated. Differentiable.
at::Tensor take_rows(const at::Tensor& values, const std::vector<std::int64_t>& rows);

/// A permutation of all rows and its inverse. Index tensors are created once per device. Thread-safe.
class RowOrder {
 public:
  explicit RowOrder(std::vector<std::int64_t> rows) : rows_(std::move(rows)) {}
  /// Permutes (rows, ...) by a gather; the gradient is a gather too, without accumulation.
  at::Tensor apply(const at::Tensor& values) const { return permute(values, false); }
  at::Tensor undo(const at::Tensor& values) const { return permute(values, true); }

 private:
  at::Tensor permute(const at::Tensor& values, bool inverse) const;

  const std::vector<std::int64_t> rows_;
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<at::Device, std::pair<at::Tensor, at::Tensor>>> indices_;
};

}  // namespace danling::inline v0::detail
