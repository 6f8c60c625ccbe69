// The binary tree along which values of all ranks are summed.
#pragma once

#include <cstdint>
#include <vector>

namespace danling::inline v0::detail {

/// Leaves [begin, end) of a tree whose number of leaves is a power of two. Each rank has one whole subtree, so the sum
/// does not depend on the number of ranks.
struct Subtree {
  std::int64_t begin = 0;
  std::int64_t end = 1;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Subtree&) const = default;
};

/// Divides a tree of `leaves` leaves into `ranks` subtrees: halves the largest one, the leftmost first, until there are
/// enough. 3 ranks and 8 leaves: 2, 2 and 4.
/// @throws DistributedError unless `leaves` is a power of two and at least `ranks`.
std::vector<Subtree> subtrees_of_ranks(std::int64_t ranks, std::int64_t leaves);

/// The same with one leaf per rank: 3 ranks are ((0, 1), 2).
std::vector<Subtree> subtrees_of_ranks(std::int64_t ranks);

/// Returns the first rank of the right half of the node over ranks [begin, end).
std::size_t right_half(const std::vector<Subtree>& ranks, std::size_t begin, std::size_t end);

}  // namespace danling::inline v0::detail
