// Splits rows of a parameter over the ranks of a group: ceil(rows / ranks) each, as in PyTorch's FSDP2.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <distributed/sum_tree.hpp>

namespace danling::inline v0::detail {

struct RowRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Rows are split into equal parts, the last shorter or empty; each rank has some consecutive parts. One part per rank;
/// with virtual ranks, one per virtual rank, so that the parts do not depend on the number of ranks.
class RowSplit {
 public:
  explicit RowSplit(std::int64_t ranks) : RowSplit(subtrees_of_ranks(ranks)) {}
  /// `ranks`: the parts of each rank, consecutive over ranks.
  explicit RowSplit(std::vector<Subtree> ranks) : ranks_(std::move(ranks)) {}

  std::int64_t ranks() const { return static_cast<std::int64_t>(ranks_.size()); }
  std::int64_t parts() const { return ranks_.back().end; }
  /// Parts of a rank.
  const Subtree& parts_of(std::int64_t rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  RowRange range(std::int64_t rows, std::int64_t rank) const { return range(rows, parts_of(rank)); }
  RowRange range(std::int64_t rows, const Subtree& of) const {
    const std::int64_t each = (rows + parts() - 1) / parts();
    const std::int64_t begin = std::min(of.begin * each, rows);
    return {begin, std::min(of.end * each, rows) - begin};
  }

 private:
  std::vector<Subtree> ranks_;
};

/// Number of rows; a parameter without dimensions is one row.
inline std::int64_t rows_of(const at::Tensor& parameter) { return parameter.dim() == 0 ? 1 : parameter.size(0); }

inline std::int64_t row_size(const at::Tensor& parameter) {
  const std::int64_t rows = rows_of(parameter);
  return rows == 0 ? 0 : parameter.numel() / rows;
}

/// A view of some rows of a whole tensor.
inline at::Tensor take_rows(const at::Tensor& whole, const RowRange& range) {
  return (whole.dim() == 0 ? whole.view({1}) : whole).narrow(0, range.begin, range.count);
}

}  // namespace danling::inline v0::detail
