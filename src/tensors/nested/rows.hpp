// Rows of packed values in another order, or some of them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// Numbers of rows on the device.
at::Tensor row_index(const std::vector<std::int64_t>& rows, at::Device device);
/// For each row of the new order the row of the old one. Rows may be left out or repeated. Differentiable.
at::Tensor take_rows(const at::Tensor& values, const std::vector<std::int64_t>& rows);

/// An order of all rows and its inverse. The index tensors are made once per device. Thread-safe.
class RowOrder {
 public:
  explicit RowOrder(std::vector<std::int64_t> rows) : rows_(std::move(rows)) {}
  /// Of (rows, ...), by gathering; so is its gradient, without additions.
  at::Tensor apply(const at::Tensor& values) const { return permute(values, false); }
  at::Tensor undo(const at::Tensor& values) const { return permute(values, true); }

 private:
  at::Tensor permute(const at::Tensor& values, bool inverse) const;

  const std::vector<std::int64_t> rows_;
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<at::Device, std::pair<at::Tensor, at::Tensor>>> indices_;
};

}  // namespace danling::inline v0::detail
