// Rows of tensors, in memory that grows with them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <metrics/host_staging.hpp>

namespace danling::inline v0::detail {

/// A tensor without dimensions as a row.
at::Tensor as_rows(const at::Tensor& tensor);

/// Keeps copies of rows [n, ...], one after the other. Memory comes in pieces of an eighth of what is there, so that
/// at most that much is unused, and no batch costs a tensor of its own.
class RowStore {
 public:
  /// Of the same dtype and row shape as those before: see `fits`. On `device`, or where the first rows were. Does not
  /// wait, but see HostStaging.
  void append(const at::Tensor& rows, std::optional<at::Device> device);
  bool fits(const at::Tensor& rows) const;
  /// No rows, but their dtype and shape; undefined before the first append.
  const at::Tensor& like() const { return like_; }
  /// `Float [*, 10]`: what rows must be like.
  std::string description() const;

  /// Rows that were appended.
  std::int64_t size() const { return size_; }
  /// All rows as one tensor with nothing behind them; undefined before the first append. Brings the pieces together,
  /// each freed once it was copied. Waits for copies from a device, as does `slice`.
  at::Tensor all();
  /// Some rows: a view where they lie in one piece, else a copy.
  at::Tensor slice(std::int64_t begin, std::int64_t end);

  /// The bytes of its rows, and those it has taken for them.
  std::int64_t stored_bytes() const;
  std::int64_t taken_bytes() const;

 private:
  struct Piece {
    at::Tensor memory;  // [capacity, ...]
    std::int64_t used = 0;
  };
  void write(const at::Tensor& rows);
  Piece& piece_with_room(std::int64_t rows);
  void settle();

  at::Tensor like_;
  std::vector<Piece> pieces_;
  std::int64_t size_ = 0;
  HostStaging staging_;
};

}  // namespace danling::inline v0::detail
