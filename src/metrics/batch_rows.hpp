// Which rows belong to which batch, and the order of the rows of several ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// The number of rows of each batch of a rank. Batches have numbers, which rise; those of one size that follow each
/// other take one entry.
class BatchRows {
 public:
  struct Run {
    std::int64_t first;    // number of its first batch
    std::int64_t batches;  // how many, numbered one by one
    std::int64_t rows;     // of each
  };

  /// Adds rows to the batch `index`, which is the last one or a later one.
  void add(std::int64_t index, std::int64_t rows);
  bool empty() const { return runs_.empty(); }
  /// The number of the last batch; there must be one.
  std::int64_t last() const { return runs_.back().first + runs_.back().batches - 1; }
  std::int64_t rows() const { return rows_; }
  const std::vector<Run>& runs() const { return runs_; }
  /// The batches above `index`.
  BatchRows after(std::int64_t index) const;
  /// Adds batches that come later.
  void append(const BatchRows& later);

  /// int64 [runs, 3], and its inverse: false where the numbers are no runs, or do not rise.
  at::Tensor tensor() const;
  bool read(const at::Tensor& runs);
  /// The same as a list of numbers.
  std::vector<std::int64_t> numbers() const;
  bool read(std::span<const std::int64_t> numbers);

 private:
  std::vector<Run> runs_;
  std::int64_t rows_ = 0;
};

/// Rows [begin, begin + rows) of `source`.
struct RowPiece {
  std::size_t source;
  std::int64_t begin;
  std::int64_t rows;
};

/// The rows of all `ranks` in the order of batches, and of ranks within a batch: that of one process which computes the
/// parts of all ranks.
std::vector<RowPiece> in_order(std::span<const BatchRows> ranks);

/// The batches of both.
BatchRows joined(const BatchRows& a, const BatchRows& b);

/// The same with `added` rows after `stored` ones, which are already in order, together: as `source`
/// `stored.size()`. `stored` comes first, as one piece, unless some added batch is older than a stored one.
std::vector<RowPiece> in_order(std::span<const BatchRows> stored, std::span<const BatchRows> added);

}  // namespace danling::inline v0::detail
