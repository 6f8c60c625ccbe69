// Growing storage for rows of tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <metrics/host_staging.hpp>

namespace danling::inline v0::detail {

/// Makes a tensor without dimensions one row.
at::Tensor as_rows(const at::Tensor& tensor);

/// Stores copies of rows [n, ...] in sequence. Memory grows in pieces of an eighth of the total: at most that much is
/// unused, and no batch needs a separate tensor.
class RowStore {
 public:
  /// Appends rows of the same dtype and row shape as earlier rows: see `fits`. Stores them on `device`, or on the
  /// device of the first rows. Does not wait, except as HostStaging does.
  void append(const at::Tensor& rows, std::optional<at::Device> device);
  bool fits(const at::Tensor& rows) const;
  /// An empty tensor of the rows' dtype and shape; undefined before the first append.
  const at::Tensor& like() const { return like_; }
  /// `Float [*, 10]`: the required dtype and row shape.
  std::string description() const;

  /// Number of rows.
  std::int64_t size() const { return size_; }
  /// All rows as one tensor without spare memory; undefined before the first append. Joins the pieces and frees each
  /// one after copying it. Waits for copies from a device, as does `slice`.
  at::Tensor all();
  /// A view if the rows are in one piece, otherwise a copy.
  at::Tensor slice(std::int64_t begin, std::int64_t end);

  /// Bytes of the rows, and bytes allocated for them.
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
