#include <metrics/batch_rows.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/ops/empty.h>

namespace danling::inline v0::detail {
namespace {

constexpr std::size_t run_numbers = 3;

// Iterates over the batches of a rank.
class Cursor {
 public:
  explicit Cursor(const BatchRows& batches) : run_(batches.runs().begin()), end_(batches.runs().end()) {}

  /// The number of the current batch; after the last batch, larger than all numbers.
  std::int64_t index() const { return run_ == end_ ? std::numeric_limits<std::int64_t>::max() : run_->first + done_; }
  /// Returns the rows of the current batch and advances to the next.
  std::int64_t next() {
    const std::int64_t rows = run_->rows;
    if (++done_ == run_->batches) {
      ++run_;
      done_ = 0;
    }
    return rows;
  }

 private:
  std::vector<BatchRows::Run>::const_iterator run_;
  std::vector<BatchRows::Run>::const_iterator end_;
  std::int64_t done_ = 0;
};

void add_piece(std::vector<RowPiece>& pieces, std::size_t source, std::int64_t begin, std::int64_t rows) {
  if (rows == 0) {
    return;
  }
  if (!pieces.empty() && pieces.back().source == source && pieces.back().begin + pieces.back().rows == begin) {
    pieces.back().rows += rows;
  } else {
    pieces.push_back({source, begin, rows});
  }
}

}  // namespace

void BatchRows::add(std::int64_t index, std::int64_t rows) {
  rows_ += rows;
  if (!runs_.empty() && last() == index) {
    if (rows == 0) {
      return;
    }
    std::int64_t before = runs_.back().rows;
    if (--runs_.back().batches == 0) {
      runs_.pop_back();
    }
    runs_.push_back({index, 1, before + rows});
    return;
  }
  // The last batch is complete.
  if (runs_.size() > 1) {
    const Run& complete = runs_.back();
    Run& before = runs_[runs_.size() - 2];
    if (before.rows == complete.rows && before.first + before.batches == complete.first) {
      before.batches += complete.batches;
      runs_.pop_back();
    }
  }
  runs_.push_back({index, 1, rows});
}

BatchRows BatchRows::after(std::int64_t index) const {
  BatchRows later;
  for (Run run : runs_) {
    const std::int64_t skipped = std::clamp<std::int64_t>(index + 1 - run.first, 0, run.batches);
    run.first += skipped;
    run.batches -= skipped;
    if (run.batches > 0) {
      later.runs_.push_back(run);
      later.rows_ += run.batches * run.rows;
    }
  }
  return later;
}

void BatchRows::append(const BatchRows& later) {
  for (const Run& run : later.runs_) {
    add(run.first, run.rows);
    runs_.back().batches = run.batches;
    rows_ += (run.batches - 1) * run.rows;
  }
}

std::vector<std::int64_t> BatchRows::numbers() const {
  std::vector<std::int64_t> out;
  for (const Run& run : runs_) {
    out.insert(out.end(), {run.first, run.batches, run.rows});
  }
  return out;
}

bool BatchRows::read(std::span<const std::int64_t> numbers) {
  runs_.clear();
  rows_ = 0;
  constexpr std::int64_t most = std::int64_t{1} << 60;
  for (; numbers.size() >= run_numbers; numbers = numbers.subspan(run_numbers)) {
    const Run run = {numbers[0], numbers[1], numbers[2]};
    const bool right = run.first >= -1 && run.first < most && run.batches > 0 && run.batches < most && run.rows >= 0 &&
                       run.rows <= (most - rows_) / run.batches && (runs_.empty() || run.first > last());
    if (!right) {
      return false;
    }
    rows_ += run.batches * run.rows;
    runs_.push_back(run);
  }
  return numbers.empty();
}

at::Tensor BatchRows::tensor() const {
  const std::vector<std::int64_t> all = numbers();
  at::Tensor out =
      at::empty({static_cast<std::int64_t>(runs_.size()), static_cast<std::int64_t>(run_numbers)}, at::kLong);
  std::copy(all.begin(), all.end(), out.mutable_data_ptr<std::int64_t>());
  return out;
}

bool BatchRows::read(const at::Tensor& runs) {
  if (!runs.defined() || runs.layout() != at::kStrided || runs.scalar_type() != at::kLong || runs.dim() != 2 ||
      runs.size(1) != static_cast<std::int64_t>(run_numbers)) {
    return false;
  }
  const at::Tensor host = runs.cpu().contiguous();
  return read(std::span(host.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(host.numel())));
}

std::vector<RowPiece> in_order(std::span<const BatchRows> ranks) {
  std::vector<Cursor> cursors(ranks.begin(), ranks.end());
  std::vector<std::int64_t> begin(ranks.size(), 0);
  std::vector<RowPiece> pieces;
  while (true) {
    std::int64_t index = std::numeric_limits<std::int64_t>::max();
    for (const Cursor& cursor : cursors) {
      index = std::min(index, cursor.index());
    }
    if (index == std::numeric_limits<std::int64_t>::max()) {
      return pieces;
    }
    for (std::size_t rank = 0; rank < cursors.size(); ++rank) {
      if (cursors[rank].index() == index) {
        const std::int64_t rows = cursors[rank].next();
        add_piece(pieces, rank, begin[rank], rows);
        begin[rank] += rows;
      }
    }
  }
}

BatchRows joined(const BatchRows& a, const BatchRows& b) {
  BatchRows both;
  for (Cursor in_a(a), in_b(b);;) {
    const std::int64_t index = std::min(in_a.index(), in_b.index());
    if (index == std::numeric_limits<std::int64_t>::max()) {
      return both;
    }
    both.add(index, (in_a.index() == index ? in_a.next() : 0) + (in_b.index() == index ? in_b.next() : 0));
  }
}

std::vector<RowPiece> in_order(std::span<const BatchRows> stored, std::span<const BatchRows> added) {
  const std::size_t count = stored.size();
  std::int64_t stored_rows = 0;
  // The last stored batch and the first added one, by number and rank.
  std::pair<std::int64_t, std::size_t> last{-2, 0};
  std::pair<std::int64_t, std::size_t> first{std::numeric_limits<std::int64_t>::max(), 0};
  for (std::size_t rank = 0; rank < count; ++rank) {
    stored_rows += stored[rank].rows();
    if (!stored[rank].empty()) {
      last = std::max(last, {stored[rank].last(), rank});
    }
    if (!added[rank].empty()) {
      first = std::min(first, {added[rank].runs().front().first, rank});
    }
  }
  std::vector<RowPiece> pieces;
  if (last < first) {
    add_piece(pieces, count, 0, stored_rows);
    for (const RowPiece& piece : in_order(added)) {
      pieces.push_back(piece);
    }
    return pieces;
  }
  std::vector<BatchRows> both(stored.begin(), stored.end());
  for (std::size_t rank = 0; rank < count; ++rank) {
    both[rank].append(added[rank]);
  }
  std::int64_t done = 0;
  for (RowPiece piece : in_order(both)) {
    // Rows of a rank that are stored, then those that are added.
    const std::int64_t old = stored[piece.source].rows();
    const std::int64_t taken = std::clamp<std::int64_t>(old - piece.begin, 0, piece.rows);
    add_piece(pieces, count, done, taken);
    done += taken;
    add_piece(pieces, piece.source, piece.begin + taken - old, piece.rows - taken);
  }
  return pieces;
}

}  // namespace danling::inline v0::detail
