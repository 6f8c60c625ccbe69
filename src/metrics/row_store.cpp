#include <metrics/row_store.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ops/cat.h>

#include <danling/core/format.hpp>

#include <metrics/kept.hpp>

namespace danling::inline v0::detail {
namespace {

// For smaller pieces the memory of the tensor object would matter.
constexpr std::int64_t smallest_piece = 4096;

std::int64_t row_bytes(const at::Tensor& rows) {
  std::int64_t bytes = static_cast<std::int64_t>(rows.element_size());
  for (std::int64_t dim = 1; dim < rows.dim(); ++dim) {
    bytes *= rows.size(dim);
  }
  return bytes;
}

at::Tensor rows_like(const at::Tensor& like, std::int64_t rows) {
  std::vector<std::int64_t> sizes = like.sizes().vec();
  sizes[0] = rows;
  return kept_empty(sizes, like.options());
}

void copy_rows(const at::Tensor& to, std::int64_t at, const at::Tensor& rows) {
  if (to.is_cpu() && rows.is_cpu() && rows.is_contiguous() && !rows.is_neg() && !rows.is_conj()) {
    const auto bytes = static_cast<std::size_t>(row_bytes(rows));
    std::memcpy(static_cast<char*>(to.mutable_data_ptr()) + static_cast<std::size_t>(at) * bytes, rows.const_data_ptr(),
                static_cast<std::size_t>(rows.size(0)) * bytes);
    return;
  }
  // A copy from pinned memory may read it after the owner has refilled it. A copy from pageable memory has read it when
  // it returns, without waiting for the device.
  const at::Tensor source = !to.is_cpu() && rows.is_cpu() && rows.is_pinned() ? rows.clone() : rows;
  to.narrow(0, at, rows.size(0)).copy_(source, /*non_blocking=*/to.device() == rows.device() || rows.is_cpu());
}

}  // namespace

at::Tensor as_rows(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
}

bool RowStore::fits(const at::Tensor& rows) const {
  return !like_.defined() ||
         (rows.scalar_type() == like_.scalar_type() && rows.sizes().slice(1) == like_.sizes().slice(1));
}

std::string RowStore::description() const {
  std::string text = concat(c10::toString(like_.scalar_type()), " [*");
  for (const std::int64_t size : like_.sizes().slice(1)) {
    text += concat(", ", size);
  }
  return text + "]";
}

void RowStore::append(const at::Tensor& rows, std::optional<at::Device> device) {
  if (!like_.defined()) {
    std::vector<std::int64_t> sizes = rows.sizes().vec();
    sizes[0] = 0;
    like_ = kept_empty(sizes, rows.options().device(device.value_or(rows.device())).requires_grad(false));
  }
  size_ += rows.size(0);
  if (like_.is_cpu() && !rows.is_cpu()) {
    staging_.add(rows, [this](const at::Tensor& arrived) { write(arrived); });
    return;
  }
  settle();  // keeps the order when batches of a device and of the host alternate
  write(rows);
}

void RowStore::write(const at::Tensor& rows) {
  for (std::int64_t done = 0; done < rows.size(0);) {
    Piece& piece = piece_with_room(rows.size(0) - done);
    const std::int64_t step = std::min(rows.size(0) - done, piece.memory.size(0) - piece.used);
    copy_rows(piece.memory, piece.used, rows.narrow(0, done, step));
    piece.used += step;
    done += step;
  }
}

RowStore::Piece& RowStore::piece_with_room(std::int64_t rows) {
  if (pieces_.empty() || pieces_.back().used == pieces_.back().memory.size(0)) {
    const std::int64_t smallest = smallest_piece / std::max<std::int64_t>(row_bytes(like_), 1);
    const std::int64_t capacity = std::max({rows, size_ / 8, smallest});
    pieces_.push_back({rows_like(like_, capacity), 0});
  }
  return pieces_.back();
}

void RowStore::settle() {
  staging_.finish([this](const at::Tensor& arrived) { write(arrived); });
}

at::Tensor RowStore::all() {
  settle();
  if (pieces_.empty()) {
    return like_;
  }
  if (pieces_.size() > 1 || pieces_.front().used < pieces_.front().memory.size(0)) {
    Piece whole{rows_like(like_, size_), 0};
    for (Piece& piece : pieces_) {
      copy_rows(whole.memory, whole.used, piece.memory.narrow(0, 0, piece.used));
      whole.used += piece.used;
      piece.memory.reset();
    }
    pieces_.clear();
    pieces_.push_back(std::move(whole));
  }
  return pieces_.front().memory;
}

at::Tensor RowStore::slice(std::int64_t begin, std::int64_t end) {
  settle();
  std::vector<at::Tensor> parts;
  std::int64_t first = 0;
  for (const Piece& piece : pieces_) {
    const std::int64_t from = std::max<std::int64_t>(begin - first, 0);
    const std::int64_t to = std::min(end - first, piece.used);
    if (from < to) {
      parts.push_back(piece.memory.narrow(0, from, to - from));
    }
    first += piece.used;
  }
  return parts.empty() ? like_ : parts.size() == 1 ? parts.front() : at::cat(parts);
}

std::int64_t RowStore::stored_bytes() const { return like_.defined() ? size_ * row_bytes(like_) : 0; }

std::int64_t RowStore::taken_bytes() const {
  std::int64_t rows = 0;
  for (const Piece& piece : pieces_) {
    rows += piece.memory.size(0);
  }
  return like_.defined() ? rows * row_bytes(like_) : 0;
}

}  // namespace danling::inline v0::detail
