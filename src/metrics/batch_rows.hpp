// Maps rows to batches, and orders the rows of several ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// The number of rows of each batch of a rank. Batch numbers increase; consecutive batches of one size share an entry.
class BatchRows {
 public:
  struct Run {
    std::int64_t first;    // number of the first batch
    std::int64_t batches;  // number of batches, numbered consecutively
    std::int64_t rows;     // rows of each batch
  };

  /// Adds rows to the batch `index`, which is the last one or a later one.
  void add(std::int64_t index, std::int64_t rows);
  bool empty() const { return runs_.empty(); }
  /// The number of the last batch. There must be a batch.
  std::int64_t last() const { return runs_.back().first + runs_.back().batches - 1; }
  std::int64_t rows() const { return rows_; }
  const std::vector<Run>& runs() const { return runs_; }
  /// The batches with numbers above `index`.
  BatchRows after(std::int64_t index) const;
  /// Appends later batches.
  void append(const BatchRows& later);

  /// int64 [runs, 3]. `read` is the inverse: returns false if the numbers are invalid or do not increase.
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

/// The rows of all `ranks`, ordered by batch and by rank within a batch: the order of one process that computes the
/// parts of all ranks.
std::vector<RowPiece> in_order(std::span<const BatchRows> ranks);

/// The union of the batches.
BatchRows joined(const BatchRows& a, const BatchRows& b);

/// The same for `added` rows after `stored` rows, which are already in order and form one source, `stored.size()`.
/// `stored` comes first, as one piece, unless an added batch is older than a stored one.
std::vector<RowPiece> in_order(std::span<const BatchRows> stored, std::span<const BatchRows> added);

}  // namespace danling::inline v0::detail
